// Eight channels of a convolution: the sums over the taps, with a bias and a SiLU behind them.
template <typename T, int TAPS, bool HAS_BIAS, bool IS_SILU>
__device__ __forceinline__ uint4 convolved(const uint4* packs, const T* weight, int channels, const T* bias) {
  float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  if (HAS_BIAS) {
    const uint4 added = *reinterpret_cast<const uint4*>(bias);
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      sums[i] = static_cast<float>(reinterpret_cast<const T*>(&added)[i]);
    }
  }
  #pragma unroll
  for (int tap = 0; tap < TAPS; tap++) {
    const uint4 by = *reinterpret_cast<const uint4*>(weight + static_cast<int64_t>(tap) * channels);
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      sums[i] += static_cast<float>(reinterpret_cast<const T*>(packs + tap)[i]) *
          static_cast<float>(reinterpret_cast<const T*>(&by)[i]);
    }
  }
  uint4 results;
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    const float result = IS_SILU ? sums[i] / (1.0f + expf(-sums[i])) : sums[i];
    reinterpret_cast<T*>(&results)[i] = static_cast<T>(result);
  }
  return results;
}
