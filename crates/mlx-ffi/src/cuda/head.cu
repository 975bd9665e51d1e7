// A head of queries or keys, made by one warp.

// A lane's values of a head, or of what it is multiplied with: every 32nd.
template <typename T, int D>
struct OfLane {
  static_assert(D % 32 == 0);
  T all[D / 32];

  __device__ __forceinline__ void load(const T* from) {
    #pragma unroll
    for (int i = 0; i < D / 32; i++) {
      all[i] = from[threadIdx.x % 32 + i * 32];
    }
  }
};

// Norms `own` with the weights `by`, and rotates the first DIMS of its D values by the sines and the cosines of their
// pairs; `write` takes each value. `plain` has room for D floats.
template <typename T, int D, int DIMS, bool NORM, typename Write>
__device__ __forceinline__ void make_head(
    const OfLane<T, D>& own, const OfLane<T, D>& by, float eps, float* plain, const float* sines, const float* cosines, Write write) {
  const int thread = threadIdx.x % 32;
  float total = 0;
  #pragma unroll
  for (int i = 0; i < D / 32; i++) {
    const float value = static_cast<float>(own.all[i]);
    plain[thread + i * 32] = value;
    total += value * value;
  }
  if constexpr (NORM) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      total += __shfl_xor_sync(0xffffffff, total, offset);
    }
    const float factor = rsqrtf(total / D + eps);
    #pragma unroll
    for (int i = 0; i < D / 32; i++) {
      const T even = static_cast<T>(static_cast<float>(own.all[i]) * factor);
      const T normed = static_cast<T>(static_cast<float>(even) * static_cast<float>(by.all[i]));
      plain[thread + i * 32] = static_cast<float>(normed);
    }
  }
  __syncwarp();
  #pragma unroll
  for (int i = thread; i < D; i += 32) {
    float value = plain[i];
    if (i < DIMS) {
      constexpr int HALF = DIMS / 2;
      const int pair = i < HALF ? i : i - HALF;
      const float other = plain[i < HALF ? i + HALF : pair];
      const float sin = sines[pair], cos = cosines[pair];
      value = value * cos + (i < HALF ? -other : other) * sin;
    }
    write(i, static_cast<T>(value));
  }
  __syncwarp();
}
