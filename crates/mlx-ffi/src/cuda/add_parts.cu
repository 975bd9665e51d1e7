// The sums of PARTS arrays, which lie one behind the other, in their order. Each thread has four values. With a GATE, the first OUT
// columns of a row gate the other OUT.

let_next_begin();
wait_for_last();
constexpr int SIDES = GATE == 0 ? 1 : 2;
int count = 1;
for (int i = 1; i < parts_ndim; i++) {
  count *= parts_shape[i];
}
const int at = (blockIdx.x * THREADS + threadIdx.x) * 4;
if (at < count / SIDES) {
  T results[4];
  #pragma unroll
  for (int side = 0; side < SIDES; side++) {
    const float* const from = parts + (GATE == 0 ? at : at / OUT * 2 * OUT + at % OUT) + side * OUT;
    const float4 sum = sum_of_parts<PARTS>(from, count);
    const T all[4] = {
        static_cast<T>(sum.x), static_cast<T>(sum.y), static_cast<T>(sum.z), static_cast<T>(sum.w)};
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      if constexpr (GATE != 0) {
        results[i] = side == 0 ? all[i] : gated<GATE>(results[i], all[i]);
      } else {
        results[i] = all[i];
      }
    }
  }
  *reinterpret_cast<uint2*>(out + at) = *reinterpret_cast<const uint2*>(results);
}
