// The gated delta rule over many positions. A threadgroup holds LINES lines of a head's state, eight lanes each of them. Its
// SIMD groups bring TILE positions at a time to threadgroup memory, with queries and keys of length one. So lengths, decays
// and gains are found once for all lines, and a position costs two sums over eight lanes.

constexpr int PACKS = (DK + 31) / 32 * 8;
constexpr int WIDTH = PACKS / 8;
constexpr int LINES = SIMD_GROUPS * SHARE;
constexpr int OWN = TILE / SIMD_GROUPS;
constexpr int KEYS = K_HEADS * DK;
constexpr int MIXED = 2 * KEYS + V_HEADS * DV;
constexpr bool BY_COLUMN = DECAYS > 1;
threadgroup float4 keys[TILE][PACKS];
threadgroup float4 queries[TILE][PACKS];
threadgroup float4 decays_of_columns[BY_COLUMN ? TILE : 1][BY_COLUMN ? PACKS : 1];
threadgroup float values[TILE][LINES];
threadgroup float results[TILE][LINES];
threadgroup float decays[TILE];
threadgroup float betas[TILE];
threadgroup float products[TILE];
const int lane = thread_index_in_simdgroup;
const int group = simdgroup_index_in_threadgroup;
const int part = lane % 8;
const int line = group * SHARE + lane / 8;
const int head = threadgroup_position_in_grid.y;
const int64_t row = threadgroup_position_in_grid.z;
const int l = mixed_shape[1];
const int64_t a_columns = a_shape[2];
const int64_t b_columns = b_shape[2];
const int first = threadgroup_position_in_grid.x * LINES;
const int count = HAS_LENGTHS ? metal::clamp(int(lengths[row]), 0, l) : l;
const int key_at = head / (V_HEADS / K_HEADS) * DK;
const bool has_line = first + line < DV;
const int64_t held_at = ((row * V_HEADS + head) * DV + first + line) * DK;
float4 held[WIDTH];
for (int i = 0; i < WIDTH; i++) {
  for (int j = 0; j < 4; j++) {
    const int column = (i * 8 + part) * 4 + j;
    held[i][j] = has_line && column < DK ? state[held_at + column] : 0.0f;
  }
}
const float rate = -metal::precise::exp(a_log[head]);
for (int tile = 0; tile < l; tile += TILE) {
  for (int n = 0; n < OWN; n++) {
    const int place = group * OWN + n;
    // Positions that do not count leave the state as it is.
    const bool counts = tile + place < count;
    const int64_t at = row * l + tile + place;
    float of_q = 0;
    float of_k = 0;
    float of_both = 0;
    for (int i = lane; i < PACKS; i += 32) {
      float4 q = 0.0f;
      float4 k = 0.0f;
      float4 by = 1.0f;
      for (int j = 0; j < 4; j++) {
        const int column = i * 4 + j;
        if (counts && column < DK) {
          q[j] = static_cast<float>(mixed[at * MIXED + key_at + column]);
          k[j] = static_cast<float>(mixed[at * MIXED + KEYS + key_at + column]);
          if (BY_COLUMN) {
            const int decay_at = head * DK + column;
            const float moved = static_cast<float>(a[at * a_columns + A_AT + decay_at]) + dt_bias[decay_at];
            by[j] = metal::precise::exp(rate * softplus_of(moved));
          }
        }
      }
      queries[place][i] = q;
      keys[place][i] = k;
      if (BY_COLUMN) {
        decays_of_columns[place][i] = by;
      }
      of_q += metal::dot(q, q);
      of_k += metal::dot(k, k);
      of_both += metal::dot(q, k);
    }
    of_q = metal::simd_sum(of_q);
    of_k = metal::simd_sum(of_k);
    of_both = metal::simd_sum(of_both);
    const float unit_q = metal::precise::rsqrt((of_q + LENGTH_EPSILON) * DK);
    const float unit_k = metal::precise::rsqrt(of_k + LENGTH_EPSILON);
    for (int i = lane; i < PACKS; i += 32) {
      queries[place][i] *= unit_q;
      keys[place][i] *= unit_k;
    }
    for (int i = lane; i < LINES; i += 32) {
      const bool is_there = counts && first + i < DV;
      values[place][i] = is_there ? static_cast<float>(mixed[at * MIXED + 2 * KEYS + head * DV + first + i]) : 0.0f;
    }
    if (lane == 0) {
      decays[place] = 1.0f;
      if (counts && !BY_COLUMN) {
        const float moved = static_cast<float>(a[at * a_columns + A_AT + head]) + dt_bias[head];
        decays[place] = metal::precise::exp(rate * softplus_of(moved));
      }
      betas[place] = counts ? sigmoid_of(static_cast<float>(b[at * b_columns + B_AT + head])) : 0.0f;
      products[place] = unit_q * unit_k * of_both;
    }
  }
  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  const int end = metal::min(TILE, l - tile);
  for (int t = 0; t < end; t++) {
    float by_k = 0;
    float by_q = 0;
    for (int i = 0; i < WIDTH; i++) {
      if (BY_COLUMN) {
        held[i] *= decays_of_columns[t][i * 8 + part];
      }
      by_k += metal::dot(held[i], keys[t][i * 8 + part]);
      by_q += metal::dot(held[i], queries[t][i * 8 + part]);
    }
    for (ushort offset = 4; offset > 0; offset /= 2) {
      by_k += metal::simd_shuffle_xor(by_k, offset);
      by_q += metal::simd_shuffle_xor(by_q, offset);
    }
    const float decay = decays[t];
    const float wrong = (values[t][line] - decay * by_k) * betas[t];
    for (int i = 0; i < WIDTH; i++) {
      held[i] = decay * held[i] + wrong * keys[t][i * 8 + part];
    }
    if (part == 0) {
      results[t][line] = decay * by_q + wrong * products[t];
    }
  }
  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  for (int i = thread_position_in_threadgroup.x; i < end * LINES; i += SIMD_GROUPS * 32) {
    const int t = tile + i / LINES;
    const int value = first + i % LINES;
    if (value < DV) {
      const float result = t < count ? results[i / LINES][i % LINES] : 0.0f;
      out[(row * l + t) * (V_HEADS * DV) + head * DV + value] = static_cast<T>(result);
    }
  }
}
for (int i = 0; i < WIDTH; i++) {
  for (int j = 0; j < 4; j++) {
    const int column = (i * 8 + part) * 4 + j;
    if (has_line && column < DK) {
      next[held_at + column] = held[i][j];
    }
  }
}
