// Instructions of the tensor cores, and copies that run beside what is computed.

// sums += a b for a of 16 × 16 and b of 16 × 8.
template <typename T>
__device__ __forceinline__ void accumulate(float* sums, const unsigned* a, unsigned b0, unsigned b1);
template <>
__device__ __forceinline__ void accumulate<__nv_bfloat16>(float* sums, const unsigned* a, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void accumulate<__half>(float* sums, const unsigned* a, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <typename T>
constexpr bool IS_HALF = false;
template <>
constexpr bool IS_HALF<__half> = true;
__device__ __forceinline__ unsigned shared_address(const void* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}
// Four matrices of 8 × 8, whose rows the lanes name.
__device__ __forceinline__ void load_matrices(unsigned* to, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "r"(shared_address(row)));
}
// Sixteen bytes, zeros where there is nothing to copy.
__device__ __forceinline__ void copy_ahead(void* to, const void* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
      "l"(from), "r"(is_there ? 16 : 0) : "memory");
}
// Four, eight or sixteen bytes.
template <int BYTES>
__device__ __forceinline__ void copy_few_ahead(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(BYTES) : "memory");
}
// The shared memory that a launch asks for, at multiples of sixteen bytes. Kernels have its address: the compiler would find it
// anew at each use.
using Shared = unsigned;
__device__ __forceinline__ Shared memory_of_launch() {
  extern __shared__ uint4 of_launch[];
  return shared_address(of_launch);
}
// Copies four, eight or sixteen bytes, zeros where there is nothing to copy. What lies beside them comes into the second-level cache.
template <int BYTES>
__device__ __forceinline__ void copy_to(Shared to, const void* from, bool is_there) {
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_there ? 16 : 0) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(to),
        "l"(from), "n"(BYTES), "r"(is_there ? BYTES : 0) : "memory");
  }
}
// Two values side by side.
template <typename T>
struct TwoOf {
  using Type = __nv_bfloat162;
};
template <>
struct TwoOf<__half> {
  using Type = __half2;
};
template <typename T>
using Pair = typename TwoOf<T>::Type;
// A value, twice.
template <typename T>
__device__ __forceinline__ Pair<T> twice_at(Shared at) {
  unsigned short found;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(found) : "r"(at));
  const unsigned both = __byte_perm(found, 0, 0x1010);
  return reinterpret_cast<const Pair<T>&>(both);
}
// A value as a float.
template <typename T>
__device__ __forceinline__ float half_at(Shared at) {
  unsigned short found;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(found) : "r"(at));
  return static_cast<float>(reinterpret_cast<const T&>(found));
}
__device__ __forceinline__ unsigned char byte_at(Shared at) {
  unsigned found;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(found) : "r"(at));
  return static_cast<unsigned char>(found);
}
__device__ __forceinline__ uint4 four_at(Shared at) {
  uint4 found;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w) : "r"(at));
  return found;
}
// Four, eight or sixteen bytes, as words.
template <int BYTES>
__device__ __forceinline__ void words_at(Shared at, unsigned* to) {
  if constexpr (BYTES == 16) {
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at));
  } else if constexpr (BYTES == 8) {
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(at));
  } else {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to[0]) : "r"(at));
  }
}
// Copies two values of two bytes, zeros in place of those that are not there.
__device__ __forceinline__ void copy_two_to(Shared to, const void* from, int there) {
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(min(max(there, 0), 2) * 2) : "memory");
}
// Copies four bytes, zeros in place of those that are not there.
__device__ __forceinline__ void copy_word_to(Shared to, const void* from, int there) {
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(min(max(there, 0), 4)) : "memory");
}
__device__ __forceinline__ float float_at(Shared at) {
  float found;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(found) : "r"(at));
  return found;
}
__device__ __forceinline__ void put_at(Shared at, uint4 value) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w) : "memory");
}
__device__ __forceinline__ void put_at(Shared at, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(value) : "memory");
}
// Of a word, one of two values as a float, and what names it.
constexpr unsigned FIRST_VALUE = 0x1044;
constexpr unsigned SECOND_VALUE = 0x3244;
template <typename T>
__device__ __forceinline__ float value_of(unsigned word, unsigned which) {
  unsigned upper;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(upper) : "r"(word), "r"(which));
  if constexpr (IS_HALF<T>) {
    const unsigned short bits = upper >> 16;
    return static_cast<float>(*reinterpret_cast<const T*>(&bits));
  } else {
    return __uint_as_float(upper);
  }
}
__device__ __forceinline__ void end_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits for all but the last groups of copies.
template <int GROUPS = 1>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}
// Four matrices of 8 × 8, whose columns the lanes get.
__device__ __forceinline__ void load_transposed(unsigned* to, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "r"(shared_address(row)));
}
// Two values side by side.
template <typename T>
__device__ __forceinline__ unsigned two_of(float first, float second) {
  const T both[2] = {static_cast<T>(first), static_cast<T>(second)};
  return *reinterpret_cast<const unsigned*>(both);
}
// A matrix of 8 × 8, of which each lane has two values of a row, such that it has two of a column.
__device__ __forceinline__ unsigned transposed(unsigned of_row) {
  unsigned of_column;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(of_column) : "r"(of_row));
  return of_column;
}
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
