// Groups of D values of x, each with its RMS norm, beside a gate: the gate sees what the norm gives, or the norm what the
// gate lets through. TOGETHER threads of a block, a warp or all, keep the values of a group in registers.

let_next_begin();
wait_for_last();
constexpr int EACH = (D + TOGETHER - 1) / TOGETHER;
const int lane = threadIdx.x % TOGETHER;
const int64_t group = static_cast<int64_t>(blockIdx.x) * (THREADS / TOGETHER) + threadIdx.x / TOGETHER;
const int64_t groups = x_shape[2] / D;
const int64_t all = static_cast<int64_t>(x_shape[0]) * x_shape[1] * groups;
const int64_t row = group / groups;
const int64_t own = group % groups;
const bool is_there = group < all;
const T* const gates = gate + row * gate_shape[2] + GATE_AT + own * D;
const T* const by = weight + (OF_GROUPS ? own * D : 0);
T values[EACH];
T opens[EACH];
float sum = 0;
#pragma unroll
for (int i = 0; i < EACH; i++) {
  const int at = i * TOGETHER + lane;
  if (is_there && at < D) {
    values[i] = x[group * D + at];
    opens[i] = gates[at];
    if (GATE_FIRST) {
      values[i] = gated<GATE>(opens[i], values[i]);
    }
    const float value = static_cast<float>(values[i]);
    sum += value * value;
  }
}
#pragma unroll
for (int offset = 16; offset > 0; offset /= 2) {
  sum += __shfl_xor_sync(0xffffffff, sum, offset);
}
if constexpr (TOGETHER > 32) {
  __shared__ float sums[WARPS];
  if (threadIdx.x % 32 == 0) {
    sums[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  sum = 0;
  #pragma unroll
  for (int i = 0; i < WARPS; i++) {
    sum += sums[i];
  }
}
const float scale = rsqrtf(sum / D + __int_as_float(EPS));
#pragma unroll
for (int i = 0; i < EACH; i++) {
  const int at = i * TOGETHER + lane;
  if (is_there && at < D) {
    const T normed = static_cast<T>(static_cast<float>(values[i]) * scale * static_cast<float>(by[at]));
    out[group * D + at] = GATE_FIRST ? normed : gated<GATE>(opens[i], normed);
  }
}
