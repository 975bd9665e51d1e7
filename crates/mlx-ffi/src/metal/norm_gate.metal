// The RMS norm of a group of columns, and its gate, which may come first. A threadgroup has a group of a row; a lane
// goes through its columns in steps of all threads.

constexpr int THREADS = SIMD_GROUPS * 32;
threadgroup float sums[SIMD_GROUPS];
const int lane = thread_index_in_simdgroup;
const int index = thread_position_in_threadgroup.x;
const int group = threadgroup_position_in_grid.y;
const int64_t row = threadgroup_position_in_grid.z;
const int64_t x_at = (row * GROUPS + group) * SIZE;
const int64_t gate_at = row * GATE_COLUMNS + GATE_AT + group * SIZE;
const int weight_at = HAS_WEIGHT_OF_GROUPS ? group * SIZE : 0;
float sum = 0;
for (int i = index; i < SIZE; i += THREADS) {
  float value = static_cast<float>(x[x_at + i]);
  if (GATE_IS_FIRST) {
    value = static_cast<float>(static_cast<T>(value * activation_of<ACTIVATION>(static_cast<float>(gate[gate_at + i]))));
  }
  sum += value * value;
}
sum = metal::simd_sum(sum);
if (lane == 0) {
  sums[simdgroup_index_in_threadgroup] = sum;
}
metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
float all = 0;
for (int i = 0; i < SIMD_GROUPS; i++) {
  all += sums[i];
}
const float scale = metal::precise::rsqrt(all / SIZE + as_type<float>(EPSILON));
for (int i = index; i < SIZE; i += THREADS) {
  const float open = activation_of<ACTIVATION>(static_cast<float>(gate[gate_at + i]));
  float value = static_cast<float>(x[x_at + i]);
  if (GATE_IS_FIRST) {
    value = static_cast<float>(static_cast<T>(value * open));
  }
  value = value * scale * static_cast<float>(weight[weight_at + i]);
  out[x_at + i] = static_cast<T>(GATE_IS_FIRST ? value : value * open);
}
