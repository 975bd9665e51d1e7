// The selective scan of Mamba 2, position by position. A SIMD group holds SHARE lines of a head's state in registers; a lane
// has each 32nd column.

constexpr int WIDTH = (N + 31) / 32;
constexpr int INNER = HEADS * P;
constexpr int MIXED = INNER + 2 * GROUPS * N;
const int lane = thread_index_in_simdgroup;
const int head = threadgroup_position_in_grid.y;
const int64_t row = threadgroup_position_in_grid.z;
const int l = mixed_shape[1];
const int64_t dt_columns = dt_shape[2];
const int first = (threadgroup_position_in_grid.x * SIMD_GROUPS + simdgroup_index_in_threadgroup) * SHARE;
if (first < P) {
  const int count = HAS_LENGTHS ? metal::clamp(int(lengths[row]), 0, l) : l;
  const int b_at = INNER + head / (HEADS / GROUPS) * N;
  const int64_t state_at = ((row * HEADS + head) * P + first) * N;
  float held[SHARE][WIDTH];
  for (int s = 0; s < SHARE; s++) {
    for (int i = 0; i < WIDTH; i++) {
      const int column = i * 32 + lane;
      held[s][i] = column < N && first + s < P ? state[state_at + s * N + column] : 0.0f;
    }
  }
  const float rate = -metal::precise::exp(a_log[head]);
  const float added = dt_bias[head];
  const float passed = d[head];
  for (int t = 0; t < count; t++) {
    const int64_t at = row * l + t;
    float b[WIDTH];
    float c[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
      const int column = i * 32 + lane;
      b[i] = column < N ? static_cast<float>(mixed[at * MIXED + b_at + column]) : 0.0f;
      c[i] = column < N ? static_cast<float>(mixed[at * MIXED + b_at + GROUPS * N + column]) : 0.0f;
    }
    const float wanted = softplus_of(static_cast<float>(dt[at * dt_columns + DT_AT + head]) + added);
    const float step = metal::min(metal::max(wanted, as_type<float>(LEAST)), as_type<float>(LARGEST));
    const float decay = metal::precise::exp(rate * step);
    for (int s = 0; s < SHARE; s++) {
      const float x = first + s < P ? static_cast<float>(mixed[at * MIXED + head * P + first + s]) : 0.0f;
      const float moving = step * x;
      float sum = 0;
      for (int i = 0; i < WIDTH; i++) {
        held[s][i] = decay * held[s][i] + moving * b[i];
        sum += held[s][i] * c[i];
      }
      sum = metal::simd_sum(sum);
      if (lane == s && first + s < P) {
        out[at * INNER + head * P + first + s] = static_cast<T>(sum + passed * x);
      }
    }
  }
  for (int t = count; t < l; t++) {
    if (lane < SHARE && first + lane < P) {
      out[(row * l + t) * INNER + head * P + first + lane] = static_cast<T>(0.0f);
    }
  }
  for (int s = 0; s < SHARE; s++) {
    for (int i = 0; i < WIDTH; i++) {
      const int column = i * 32 + lane;
      if (column < N && first + s < P) {
        next[state_at + s * N + column] = held[s][i];
      }
    }
  }
}
