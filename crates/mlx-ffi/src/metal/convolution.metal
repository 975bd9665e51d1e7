// A short causal convolution of each channel by itself after the positions of `state`, and what of both comes before the next
// position. One channel of a position for each thread.

constexpr int BEFORE = TAPS - 1;
const int l = x_shape[1];
const int64_t columns = x_shape[2];
const int channels = weight_shape[1];
const int channel = thread_position_in_grid.x;
const int place = thread_position_in_grid.y;
const int64_t row = thread_position_in_grid.z;
if (place >= l) {
  const int count = HAS_LENGTHS ? metal::clamp(int(lengths[row]), 0, l) : l;
  const int t = count - BEFORE + place - l;
  next[(row * BEFORE + place - l) * channels + channel] =
      t < 0 ? state[(row * BEFORE + BEFORE + t) * channels + channel] : x[(row * l + t) * columns + X_AT + channel];
} else {
  float sum = HAS_BIAS ? static_cast<float>(bias[channel]) : 0.0f;
  for (int tap = 0; tap < TAPS; tap++) {
    const int t = place - BEFORE + tap;
    const float value = static_cast<float>(
        t < 0 ? state[(row * BEFORE + BEFORE + t) * channels + channel] : x[(row * l + t) * columns + X_AT + channel]);
    sum += value * static_cast<float>(weight[tap * channels + channel]);
  }
  out[(row * l + place) * channels + channel] = static_cast<T>(IS_SILU ? sum * sigmoid_of(sum) : sum);
}
