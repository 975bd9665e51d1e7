// A convolution of one more position of each row: `state` moves on by one position, in place.

let_next_begin();
wait_for_last();
constexpr int BEFORE = TAPS - 1;
const int64_t columns = x_shape[2];
const int channels = weight_shape[1];
const int64_t index = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * 8;
const int k = index % channels;
const int64_t row = index / channels;
if (row < x_shape[0]) {
  T* const before = const_cast<T*>(state) + row * BEFORE * channels + k;
  uint4 packs[TAPS];
  #pragma unroll
  for (int tap = 0; tap < BEFORE; tap++) {
    packs[tap] = *reinterpret_cast<const uint4*>(before + tap * channels);
  }
  packs[BEFORE] = *reinterpret_cast<const uint4*>(x + row * columns + X_AT + k);
  #pragma unroll
  for (int tap = 0; tap < BEFORE; tap++) {
    *reinterpret_cast<uint4*>(before + tap * channels) = packs[tap + 1];
  }
  *reinterpret_cast<uint4*>(out + row * channels + k) =
      convolved<T, TAPS, HAS_BIAS, IS_SILU>(packs, weight + k, channels, bias + k);
}
