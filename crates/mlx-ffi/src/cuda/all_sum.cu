// The sum of the values of RANKS ranks, each of which has a device and writes into the memory of the others. Blocks of the
// same number meet, and no others. All ranks add in the same order, so they have the same bits.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace mlx::core::cu {

// `peers.cpp` defines RANKS, and the threads and blocks of small and of large sums.

// How a rank sees the memory of all.
struct Seen {
  // Values of few bytes, each with the number of the sum that it belongs to: [2][SMALL_BLOCKS][RANKS][SMALL_THREADS].
  uint4* lines[RANKS];
  // What a rank is given to sum, and what others have summed: [LARGE_BLOCKS][RANKS][capacity] each.
  uint4* terms[RANKS];
  uint4* sums[RANKS];
  // Which sum is there: [2][LARGE_BLOCKS][RANKS].
  unsigned* flags[RANKS];
  // The number of the last sum of each block: [SMALL_BLOCKS + LARGE_BLOCKS]. This rank's alone.
  unsigned* numbers;
  const int* is_given_up;
  long long capacity;
  int rank;
};

// Nothing else is waited for so often that this would count.
__device__ __forceinline__ bool is_given_up(const Seen& seen, unsigned& turns) {
  return ++turns % 4096 == 0 && *reinterpret_cast<const volatile int*>(seen.is_given_up) != 0;
}

template <typename T, int COUNT>
__device__ __forceinline__ void add(float* totals, const unsigned* words) {
  #pragma unroll
  for (int i = 0; i < COUNT; i++) {
    totals[i] += static_cast<float>(reinterpret_cast<const T*>(words)[i]);
  }
}

template <typename T, int COUNT>
__device__ __forceinline__ void round_to(unsigned* words, const float* totals) {
  #pragma unroll
  for (int i = 0; i < COUNT; i++) {
    reinterpret_cast<T*>(words)[i] = static_cast<T>(totals[i]);
  }
}

// Eight bytes for each thread. Words travel with the sum's number beside them, so nothing has to tell that they are there.
// A block's next sum but one is the first that overwrites them. By then all ranks have read them: a block of the sum between has
// heard of each of them, and sums of a rank run one after the other.
template <typename T>
__device__ void small_sum(const uint2* in, uint2* out, long long units, const Seen& seen) {
  const unsigned number = seen.numbers[blockIdx.x] + 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    seen.numbers[blockIdx.x] = number;
  }
  const long long unit = static_cast<long long>(blockIdx.x) * SMALL_THREADS + threadIdx.x;
  if (unit >= units) {
    return;
  }
  const long long slots = ((number & 1) * SMALL_BLOCKS + blockIdx.x) * RANKS;
  const uint2 own = in[unit];
  #pragma unroll
  for (int i = 1; i < RANKS; i++) {
    const int to = (seen.rank + i) % RANKS;
    uint4* line = seen.lines[to] + (slots + seen.rank) * SMALL_THREADS + threadIdx.x;
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(line), "r"(own.x), "r"(number), "r"(own.y), "r"(number) : "memory");
  }
  constexpr int COUNT = 8 / sizeof(T);
  float totals[COUNT] = {};
  unsigned turns = 0;
  #pragma unroll
  for (int from = 0; from < RANKS; from++) {
    unsigned words[2] = {own.x, own.y};
    if (from != seen.rank) {
      const uint4* line = seen.lines[seen.rank] + (slots + from) * SMALL_THREADS + threadIdx.x;
      unsigned first, second;
      do {
        asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(first), "=r"(words[1]), "=r"(second) : "l"(line) : "memory");
      } while ((first != number || second != number) && !is_given_up(seen, turns));
    }
    add<T, COUNT>(totals, words);
  }
  unsigned words[2];
  round_to<T, COUNT>(words, totals);
  out[unit] = make_uint2(words[0], words[1]);
}

// Copies with several reads under way.
__device__ __forceinline__ void copy(uint4* to, const uint4* from, long long count) {
  constexpr int AT_ONCE = 4;
  const int step = blockDim.x;
  long long i = threadIdx.x;
  for (; i + (AT_ONCE - 1) * step < count; i += AT_ONCE * step) {
    uint4 packs[AT_ONCE];
    #pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
      packs[k] = __ldcv(from + i + k * step);
    }
    #pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
      to[i + k * step] = packs[k];
    }
  }
  for (; i < count; i += step) {
    to[i] = __ldcv(from + i);
  }
}

// Tells this block of the other ranks that what it has written for them is there, and waits until they tell the same.
__device__ __forceinline__ void meet(const Seen& seen, int phase, unsigned number) {
  __syncthreads();
  const int other = threadIdx.x;
  if (other < RANKS && other != seen.rank) {
    const long long block = (phase * LARGE_BLOCKS + blockIdx.x) * RANKS;
    __threadfence_system();
    asm volatile("st.release.sys.global.u32 [%0], %1;"
                 :: "l"(seen.flags[other] + block + seen.rank), "r"(number) : "memory");
    const unsigned* flag = seen.flags[seen.rank] + block + other;
    unsigned found, turns = 0;
    do {
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(found) : "l"(flag) : "memory");
    } while (found != number && !is_given_up(seen, turns));
  }
  __syncthreads();
}

// Each rank sums a part of the values for all. A block begins its next sum only once the others have read what it wrote
// before, as it had to hear of them.
template <typename T>
__device__ void large_sum(const uint4* in, uint4* out, long long packs, const Seen& seen) {
  unsigned* last = seen.numbers + SMALL_BLOCKS + blockIdx.x;
  const unsigned number = *last + 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    *last = number;
  }
  const long long part = (packs + RANKS - 1) / RANKS;
  const long long piece = (part + gridDim.x - 1) / gridDim.x;
  const long long first = blockIdx.x * piece;
  auto begin = [&](int rank) { return rank * part + first; };
  auto count = [&](int rank) {
    const long long most = min(piece, part - first);
    return max(0ll, min(most, packs - begin(rank)));
  };
  const long long slots = static_cast<long long>(blockIdx.x) * RANKS;
  #pragma unroll
  for (int i = 1; i < RANKS; i++) {
    const int to = (seen.rank + i) % RANKS;
    copy(seen.terms[to] + (slots + seen.rank) * seen.capacity, in + begin(to), count(to));
  }
  meet(seen, 0, number);
  constexpr int COUNT = 16 / sizeof(T);
  const long long own = begin(seen.rank), own_count = count(seen.rank);
  #pragma unroll 2
  for (long long i = threadIdx.x; i < own_count; i += blockDim.x) {
    float totals[COUNT] = {};
    #pragma unroll
    for (int from = 0; from < RANKS; from++) {
      const uint4 term = from == seen.rank
          ? in[own + i]
          : __ldcv(seen.terms[seen.rank] + (slots + from) * seen.capacity + i);
      add<T, COUNT>(totals, reinterpret_cast<const unsigned*>(&term));
    }
    uint4 sum;
    round_to<T, COUNT>(reinterpret_cast<unsigned*>(&sum), totals);
    out[own + i] = sum;
    #pragma unroll
    for (int k = 1; k < RANKS; k++) {
      const int to = (seen.rank + k) % RANKS;
      seen.sums[to][(slots + seen.rank) * seen.capacity + i] = sum;
    }
  }
  meet(seen, 1, number);
  #pragma unroll
  for (int i = 1; i < RANKS; i++) {
    const int from = (seen.rank + i) % RANKS;
    copy(out + begin(from), seen.sums[seen.rank] + (slots + from) * seen.capacity, count(from));
  }
}

template <typename T>
__device__ void sum_of(const void* in, void* out, long long bytes, int is_small, const Seen& seen) {
  if (is_small) {
    small_sum<T>(static_cast<const uint2*>(in), static_cast<uint2*>(out), bytes / 8, seen);
  } else {
    large_sum<T>(static_cast<const uint4*>(in), static_cast<uint4*>(out), bytes / 16, seen);
  }
}

// `type`: 0 for F32, 1 for F16, 2 for BF16.
__global__ void __launch_bounds__(LARGE_THREADS) all_sum(
    const void* in, void* out, long long bytes, int type, int is_small, const __grid_constant__ Seen seen) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  if (type == 0) {
    sum_of<float>(in, out, bytes, is_small, seen);
  } else if (type == 1) {
    sum_of<__half>(in, out, bytes, is_small, seen);
  } else {
    sum_of<__nv_bfloat16>(in, out, bytes, is_small, seen);
  }
}

} // namespace mlx::core::cu
