// A short causal convolution of each channel by itself after the positions of `state`, and what of both comes before the
// next position. Eight channels of a position for each thread.

let_next_begin();
wait_for_last();
constexpr int BEFORE = TAPS - 1;
const int rows = x_shape[0];
const int l = x_shape[1];
const int64_t columns = x_shape[2];
const int channels = weight_shape[1];
const int64_t index = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * 8;
const int k = index % channels;
const int64_t place = index / channels;
const int64_t row = place / (l + BEFORE);
const int t = place % (l + BEFORE);
if (row < rows) {
  auto at = [&](int position) {
    const T* const from = position < 0 ? state + (row * BEFORE + BEFORE + position) * channels
                                       : x + (row * l + position) * columns + X_AT;
    return *reinterpret_cast<const uint4*>(from + k);
  };
  if (t >= l) {
    const int count = HAS_LENGTHS ? min(max(lengths[row], 0), l) : l;
    *reinterpret_cast<uint4*>(next + (row * BEFORE + t - l) * channels + k) = at(count - BEFORE + t - l);
  } else {
    uint4 packs[TAPS];
    #pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
      packs[tap] = at(t - BEFORE + tap);
    }
    *reinterpret_cast<uint4*>(out + (row * l + t) * channels + k) =
        convolved<T, TAPS, HAS_BIAS, IS_SILU>(packs, weight + k, channels, bias + k);
  }
}
