// The gated delta rule, position by position. A SIMD group holds SHARE lines of a head's state in registers; a lane has each
// 32nd column. The products of the old state with query and key give the new result, so that one round of sums is enough.
// A head's state decays as a whole, or each column by itself: DECAYS of a head.

constexpr int WIDTH = (DK + 31) / 32;
constexpr int KEYS = K_HEADS * DK;
constexpr int MIXED = 2 * KEYS + V_HEADS * DV;
constexpr bool BY_COLUMN = DECAYS > 1;
constexpr int RATES = BY_COLUMN ? WIDTH : 1;
const int lane = thread_index_in_simdgroup;
const int head = threadgroup_position_in_grid.y;
const int64_t row = threadgroup_position_in_grid.z;
const int l = mixed_shape[1];
const int64_t a_columns = a_shape[2];
const int64_t b_columns = b_shape[2];
const int first = (threadgroup_position_in_grid.x * SIMD_GROUPS + simdgroup_index_in_threadgroup) * SHARE;
if (first < DV) {
  const int count = HAS_LENGTHS ? metal::clamp(int(lengths[row]), 0, l) : l;
  const int key_at = head / (V_HEADS / K_HEADS) * DK;
  const int64_t state_at = ((row * V_HEADS + head) * DV + first) * DK;
  float held[SHARE][WIDTH];
  for (int s = 0; s < SHARE; s++) {
    for (int i = 0; i < WIDTH; i++) {
      const int column = i * 32 + lane;
      held[s][i] = column < DK && first + s < DV ? state[state_at + s * DK + column] : 0.0f;
    }
  }
  const float rate = -metal::precise::exp(a_log[head]);
  float added[RATES];
  for (int i = 0; i < RATES; i++) {
    const int column = i * 32 + lane;
    added[i] = BY_COLUMN ? (column < DK ? dt_bias[head * DK + column] : 0.0f) : dt_bias[head];
  }
  for (int t = 0; t < count; t++) {
    const int64_t at = row * l + t;
    float q[WIDTH];
    float k[WIDTH];
    float v[SHARE];
    for (int i = 0; i < WIDTH; i++) {
      const int column = i * 32 + lane;
      q[i] = column < DK ? static_cast<float>(mixed[at * MIXED + key_at + column]) : 0.0f;
      k[i] = column < DK ? static_cast<float>(mixed[at * MIXED + KEYS + key_at + column]) : 0.0f;
    }
    for (int s = 0; s < SHARE; s++) {
      v[s] = first + s < DV ? static_cast<float>(mixed[at * MIXED + 2 * KEYS + head * DV + first + s]) : 0.0f;
    }
    const float beta = sigmoid_of(static_cast<float>(b[at * b_columns + B_AT + head]));
    float decay = 1.0f;
    if (BY_COLUMN) {
      for (int i = 0; i < RATES; i++) {
        const int column = i * 32 + lane;
        if (column < DK) {
          const float moved = static_cast<float>(a[at * a_columns + A_AT + head * DK + column]) + added[i];
          const float by = metal::precise::exp(rate * softplus_of(moved));
          for (int s = 0; s < SHARE; s++) {
            held[s][i] *= by;
          }
        }
      }
    } else {
      const float moved = static_cast<float>(a[at * a_columns + A_AT + head]) + added[0];
      decay = metal::precise::exp(rate * softplus_of(moved));
    }
    float of_q = 0;
    float of_k = 0;
    float of_both = 0;
    float by_k[SHARE];
    float by_q[SHARE];
    for (int i = 0; i < WIDTH; i++) {
      of_q += q[i] * q[i];
      of_k += k[i] * k[i];
      of_both += q[i] * k[i];
    }
    of_q = metal::simd_sum(of_q);
    of_k = metal::simd_sum(of_k);
    of_both = metal::simd_sum(of_both);
    for (int s = 0; s < SHARE; s++) {
      by_k[s] = 0;
      by_q[s] = 0;
      for (int i = 0; i < WIDTH; i++) {
        by_k[s] += held[s][i] * k[i];
        by_q[s] += held[s][i] * q[i];
      }
      by_k[s] = metal::simd_sum(by_k[s]);
      by_q[s] = metal::simd_sum(by_q[s]);
    }
    const float unit_q = metal::precise::rsqrt((of_q + LENGTH_EPSILON) * DK);
    const float unit_k = metal::precise::rsqrt(of_k + LENGTH_EPSILON);
    for (int s = 0; s < SHARE; s++) {
      const float wrong = (v[s] - decay * unit_k * by_k[s]) * beta * unit_k;
      for (int i = 0; i < WIDTH; i++) {
        held[s][i] = decay * held[s][i] + wrong * k[i];
      }
      if (lane == s && first + s < DV) {
        const float result = unit_q * (decay * by_q[s] + wrong * of_both);
        out[at * (V_HEADS * DV) + head * DV + first + s] = static_cast<T>(result);
      }
    }
  }
  for (int t = count; t < l; t++) {
    if (lane < SHARE && first + lane < DV) {
      out[(row * l + t) * (V_HEADS * DV) + head * DV + first + lane] = static_cast<T>(0.0f);
    }
  }
  for (int s = 0; s < SHARE; s++) {
    for (int i = 0; i < WIDTH; i++) {
      const int column = i * 32 + lane;
      if (column < DK && first + s < DV) {
        next[state_at + s * DK + column] = held[s][i];
      }
    }
  }
}
