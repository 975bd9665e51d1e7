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
