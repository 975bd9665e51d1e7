// Groups of D values of x, each with its RMS norm, beside a gate: the gate sees what the norm gives, or the norm what the
// gate lets through. Or the norm alone, rounded as MLX rounds it. TOGETHER threads of a block, a warp or all, keep the values
// of a group in registers.

let_next_begin();
wait_for_last();
constexpr int EACH = (D + TOGETHER - 1) / TOGETHER;
// Values that a thread reads at once.
constexpr int PACK = D % (TOGETHER * 8) == 0 ? 8 : D % (TOGETHER * 4) == 0 ? 4 : 1;
struct alignas(PACK * sizeof(T)) Pack {
  T values[PACK];
};
const int lane = threadIdx.x % TOGETHER;
const int64_t group = static_cast<int64_t>(blockIdx.x) * (THREADS / TOGETHER) + threadIdx.x / TOGETHER;
int64_t all = 1;
for (int i = 0; i < x_ndim; i++) {
  all *= x_shape[i];
}
const int64_t row = group / GROUPS;
const int64_t own = group % GROUPS;
const bool is_there = group < all / D;
const T* const from = x + group * D;
const T* const gates = gate + (HAS_GATE ? row * gate_shape[2] + GATE_AT + own * D : 0);
const T* const by = weight + (OF_GROUPS ? own * D : 0);
const auto begins = reinterpret_cast<unsigned long long>(from) | reinterpret_cast<unsigned long long>(by);
const bool is_aligned = begins % sizeof(Pack) == 0;
auto read = [&](const T* source, int at) {
  Pack pack;
  if (is_aligned) {
    return *reinterpret_cast<const Pack*>(source + at);
  }
  #pragma unroll
  for (int i = 0; i < PACK; i++) {
    pack.values[i] = source[at + i];
  }
  return pack;
};
T values[EACH];
T opens[EACH];
float sum = 0;
#pragma unroll
for (int first = 0; first < EACH; first += PACK) {
  const int at = first * TOGETHER + lane * PACK;
  if (is_there && at < D) {
    const Pack pack = read(from, at);
    #pragma unroll
    for (int i = 0; i < PACK; i++) {
      T& value = values[first + i];
      value = pack.values[i];
      if (HAS_GATE) {
        opens[first + i] = gates[at + i];
      }
      if (HAS_GATE && GATE_FIRST) {
        value = gated<GATE>(opens[first + i], value);
      }
      sum += static_cast<float>(value) * static_cast<float>(value);
    }
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
for (int first = 0; first < EACH; first += PACK) {
  const int at = first * TOGETHER + lane * PACK;
  if (is_there && at < D) {
    const Pack weights = read(by, at);
    Pack results;
    #pragma unroll
    for (int i = 0; i < PACK; i++) {
      const float even = static_cast<float>(values[first + i]) * scale;
      const float weight_of = static_cast<float>(weights.values[i]);
      if (HAS_GATE) {
        const T normed = static_cast<T>(even * weight_of);
        results.values[i] = GATE_FIRST ? normed : gated<GATE>(opens[first + i], normed);
      } else {
        results.values[i] = static_cast<T>(static_cast<float>(static_cast<T>(even)) * weight_of);
      }
    }
    // What a kernel makes begins at a multiple of sixteen bytes.
    *reinterpret_cast<Pack*>(out + group * D + at) = results;
  }
}
