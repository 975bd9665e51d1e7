// A short causal convolution of each channel by itself, with a SiLU behind it, after the positions of `state`, and
// what of both comes before the next position. Eight channels of a position for each thread.

let_next_begin();
wait_for_last();
constexpr int BEFORE = TAPS - 1;
const int rows = x_shape[0];
const int l = x_shape[1];
const int channels = x_shape[2];
const int64_t index = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * 8;
const int k = index % channels;
const int64_t place = index / channels;
const int64_t row = place / (l + BEFORE);
const int t = place % (l + BEFORE);
if (row < rows) {
  auto at = [&](int position) {
    const T* const from = position < 0 ? state + (row * BEFORE + BEFORE + position) * channels
                                       : x + (row * l + position) * channels;
    return *reinterpret_cast<const uint4*>(from + k);
  };
  if (t >= l) {
    const int count = HAS_LENGTHS ? min(max(lengths[row], 0), l) : l;
    *reinterpret_cast<uint4*>(next + (row * BEFORE + t - l) * channels + k) = at(count - BEFORE + t - l);
  } else {
    float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    #pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
      const uint4 pack = at(t - BEFORE + tap);
      const uint4 by = *reinterpret_cast<const uint4*>(weight + tap * channels + k);
      #pragma unroll
      for (int i = 0; i < 8; i++) {
        sums[i] += static_cast<float>(reinterpret_cast<const T*>(&pack)[i]) *
            static_cast<float>(reinterpret_cast<const T*>(&by)[i]);
      }
    }
    uint4 results;
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      reinterpret_cast<T*>(&results)[i] = static_cast<T>(sums[i] / (1.0f + expf(-sums[i])));
    }
    *reinterpret_cast<uint4*>(out + (row * l + t) * channels + k) = results;
  }
}
