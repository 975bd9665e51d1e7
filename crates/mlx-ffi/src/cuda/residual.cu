// x plus y, which may be normed and then multiplied before, times a number where there is one, and the norm of that: a
// block for each row, eight values at a time for each thread. Each step is rounded as if it were an operation of its own.

let_next_begin();
wait_for_last();
const int columns = x_shape[x_ndim - 1];
const int64_t row = static_cast<int64_t>(blockIdx.x) * columns;
__shared__ alignas(16) T values[MOST_COLUMNS];
__shared__ float totals[2][WARPS];

auto factor_of = [&](float total, int at) { return rsqrtf(sum_of_block<WARPS>(total, totals[at]) / columns + *epsilon); };

float total = 0;
if (HAS_OUT_NORM) {
  for (int k = threadIdx.x * 8; k < columns; k += WARPS * 256) {
    const uint4 pack = *reinterpret_cast<const uint4*>(y + row + k);
    const unsigned words[4] = {pack.x, pack.y, pack.z, pack.w};
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const float2 pair = unpack<T>(words[i]);
      total += pair.x * pair.x + pair.y * pair.y;
    }
  }
}
const float out_factor = HAS_OUT_NORM ? factor_of(total, 0) : 1.0f;
total = 0;
for (int k = threadIdx.x * 8; k < columns; k += WARPS * 256) {
  const uint4 ours = *reinterpret_cast<const uint4*>(x + row + k);
  const uint4 theirs = *reinterpret_cast<const uint4*>(y + row + k);
  uint4 sums;
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    T value = reinterpret_cast<const T*>(&theirs)[i];
    if (HAS_OUT_NORM) {
      value = scaled_value(value, out_factor, out_norm[k + i]);
    }
    if (HAS_FACTOR) {
      const T factor = static_cast<T>(__int_as_float(FACTOR));
      value = static_cast<T>(static_cast<float>(value) * static_cast<float>(factor));
    }
    const float own = static_cast<float>(reinterpret_cast<const T*>(&ours)[i]);
    T sum = static_cast<T>(own + static_cast<float>(value));
    if (HAS_SCALE) {
      sum = static_cast<T>(static_cast<float>(sum) * static_cast<float>(*scale));
    }
    reinterpret_cast<T*>(&sums)[i] = sum;
    total += static_cast<float>(sum) * static_cast<float>(sum);
  }
  *reinterpret_cast<uint4*>(h + row + k) = sums;
  *reinterpret_cast<uint4*>(values + k) = sums;
}
if (HAS_NORM) {
  const float factor = factor_of(total, 1);
  for (int k = threadIdx.x * 8; k < columns; k += WARPS * 256) {
    uint4 results;
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      reinterpret_cast<T*>(&results)[i] = scaled_value(values[k + i], factor, norm[k + i]);
    }
    *reinterpret_cast<uint4*>(normed + row + k) = results;
  }
}
