// The gated delta rule over many positions, on the tensor cores, where a head's state decays as a whole. Each warp of a block holds 16 rows of a
// head's state in registers. blockIdx.y is the head, blockIdx.z the row of the batch. The state is written in place: nobody else reads the
// rows that a block holds.
//
// Positions are computed in chunks of CHUNK. S is the state before a chunk, g(t) the product of its decays up to t, and w(t) what position t adds
// along its key:
//   w(t) = b(t) (v(t) - g(t) S k(t)) - sum of L(t, s) w(s) for s < t, where L(t, s) = b(t) g(t) / g(s) k(t) · k(s).
// So W = solved R, where R has the first term and `solved` is the inverse of I + L. The result of t is
//   g(t) S q(t) + sum of seen(t, s) w(s) for s <= t, where seen(t, s) = g(t) / g(s) q(t) · k(s).
// Queries and keys are multiplied as they are. Their lengths are made one by factors of the products. Floats are multiplied as two halves.

constexpr int CHUNKS = TILE / CHUNK;
constexpr int LINES = BLOCK_WARPS * 16;
constexpr int UNITS = DK / 8;
constexpr int VALUE_UNITS = LINES / 8;
constexpr int KEYS = K_HEADS * DK;
constexpr int MIXED = 2 * KEYS + V_HEADS * DV;
constexpr float EPSILON = 1e-6f;
static_assert(TILE == 32 && BLOCK_WARPS == 2 * CHUNKS, "a lane for each position, and two warps for each chunk");
let_next_begin();
wait_for_last();
__shared__ alignas(16) T queries[2][TILE * DK];
__shared__ alignas(16) T keys[2][TILE * DK];
__shared__ alignas(16) T values[2][TILE * LINES];
// Each as two halves.
__shared__ alignas(16) T solved[CHUNKS][2][CHUNK * CHUNK];
__shared__ alignas(16) T seen[CHUNKS][2][CHUNK * CHUNK];
__shared__ alignas(16) float links[CHUNKS][CHUNK][CHUNK];
// For each position: factors that make lengths one, b, the sum of the logarithms of its chunk's decays up to there, g, and the decay from there to the
// end of its chunk.
__shared__ float by_query[TILE];
__shared__ float by_key[TILE];
__shared__ float gains[TILE];
__shared__ float logs[TILE];
__shared__ float decayed[TILE];
__shared__ float left[TILE];
const int lane = threadIdx.x % 32;
const int warp = threadIdx.x / 32;
const int group = lane / 4;
const int pair = lane % 4 * 2;
const int head = blockIdx.y;
const int64_t row = blockIdx.z;
const int l = mixed_shape[1];
const int64_t a_columns = a_shape[2];
const int64_t b_columns = b_shape[2];
const int first = blockIdx.x * LINES;
const int count = HAS_LENGTHS ? min(max(lengths[row], 0), l) : l;
const T* const own = mixed + row * l * MIXED;
const int key_at = head / (V_HEADS / K_HEADS) * DK;
auto load = [&](int tile, int buffer) {
  const T* const from = own + static_cast<int64_t>(tile) * MIXED;
  copy_rows<UNITS, TILE>(queries[buffer], from + key_at, MIXED, count - tile);
  copy_rows<UNITS, TILE>(keys[buffer], from + KEYS + key_at, MIXED, count - tile);
  copy_rows<VALUE_UNITS, TILE>(values[buffer], from + 2 * KEYS + head * DV + first, MIXED, count - tile);
  end_copies();
};
// What the first warp brings of each position.
float a_next = 0;
float b_next = 0;
auto load_rates = [&](int tile) {
  const int t = tile + lane;
  if (warp == 0 && t < count) {
    a_next = static_cast<float>(a[(row * l + t) * a_columns + A_AT + head]);
    b_next = static_cast<float>(b[(row * l + t) * b_columns + B_AT + head]);
  }
};
load(0, 0);
load_rates(0);
float* const held_at = const_cast<float*>(state) + ((row * V_HEADS + head) * DV + first + warp * 16 + group) * DK + pair;
StateRows<T, UNITS> held;
held.load(held_at);
const float rate = -expf(a_log[head]);
const float added = dt_bias[head];
for (int tile = 0, buffer = 0; tile < l; tile += TILE, buffer ^= 1) {
  wait_for_copies<0>();
  __syncthreads();
  load(tile + TILE, buffer ^ 1);
  // Two threads sum the squares of a query or a key.
  {
    const int at = threadIdx.x / 2 % TILE;
    const bool is_key = threadIdx.x / 2 >= TILE;
    T* const from = is_key ? keys[buffer] : queries[buffer];
    float sum = 0;
    #pragma unroll
    for (int i = 0; i < UNITS / 2; i++) {
      const uint4 eight = *reinterpret_cast<const uint4*>(unit_at<UNITS>(from, at, 2 * i + threadIdx.x % 2));
      const unsigned words[4] = {eight.x, eight.y, eight.z, eight.w};
      #pragma unroll
      for (int n = 0; n < 4; n++) {
        const float x = value_of<T>(words[n], FIRST_VALUE);
        const float y = value_of<T>(words[n], SECOND_VALUE);
        sum += x * x + y * y;
      }
    }
    sum += __shfl_xor_sync(0xffffffff, sum, 1);
    if (threadIdx.x % 2 == 0) {
      (is_key ? by_key : by_query)[at] = rsqrtf((sum + EPSILON) * (is_key ? 1 : DK));
    }
  }
  if (warp == 0) {
    // Positions that do not count leave the state as it is.
    const bool counts = tile + lane < count;
    const float step = softplus(a_next + added);
    float all;
    const float sum = sums_of_chunks(counts ? rate * step : 0.0f, all, lane);
    gains[lane] = counts ? 1.0f / (1.0f + expf(-b_next)) : 0.0f;
    logs[lane] = sum;
    decayed[lane] = expf(sum);
    left[lane] = expf(all - sum);
    load_rates(tile + TILE);
  }
  // A warp multiplies a chunk's keys with themselves, another one its queries with these.
  const int own_chunk = warp % CHUNKS;
  const int own_first = own_chunk * CHUNK;
  const bool has_keys = warp < CHUNKS;
  float of_keys[2][4] = {};
  products_of_rows<UNITS>(of_keys, has_keys ? keys[buffer] : queries[buffer], keys[buffer], own_first, lane);
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const int at = group + i / 2 % 2 * 8;
    const int t = own_first + at;
    float found[2];
    #pragma unroll
    for (int n = 0; n < 2; n++) {
      const int s = own_first + i / 4 * 8 + pair + n;
      const float scale = expf(logs[t] - logs[s]) * by_key[s] * (has_keys ? gains[t] * by_key[t] : by_query[t]);
      found[n] = (has_keys ? s < t : s <= t) ? scale * of_keys[i / 4][i % 4 + n] : 0.0f;
    }
    const int column = i / 4 * 8 + pair;
    if (has_keys) {
      links[own_chunk][at][column] = found[0];
      links[own_chunk][at][column + 1] = found[1];
    } else {
      put_seen(seen[own_chunk], at * CHUNK + column, found);
    }
  }
  __syncwarp();
  // A lane has a column of the inverse.
  if (has_keys && lane < CHUNK) {
    float of_column[CHUNK];
    #pragma unroll
    for (int t = 0; t < CHUNK; t++) {
      float sum = t == lane ? 1.0f : 0.0f;
      #pragma unroll
      for (int s = 0; s < t; s++) {
        sum -= links[own_chunk][t][s] * of_column[s];
      }
      of_column[t] = sum;
      const T high = static_cast<T>(sum);
      solved[own_chunk][0][t * CHUNK + lane] = high;
      solved[own_chunk][1][t * CHUNK + lane] = static_cast<T>(sum - static_cast<float>(high));
    }
  }
  __syncthreads();
  for (int chunk = 0; chunk < CHUNKS; chunk++) {
    const int base = chunk * CHUNK;
    float with_keys[2][4] = {};
    float with_queries[2][4] = {};
    #pragma unroll
    for (int k = 0; k < UNITS / 2; k++) {
      const Floats<T> of_state = held.columns(k);
      add_products<UNITS>(with_keys, of_state, keys[buffer], base, k, lane);
      add_products<UNITS>(with_queries, of_state, queries[buffer], base, k, lane);
    }
    unsigned v[4];
    load_transposed(v, unit_at<VALUE_UNITS>(values[buffer], base + row_beside(lane), warp * 2 + lane / 8 % 2));
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      const int t = base + i / 4 * 8 + pair + i % 2;
      float& with_key = with_keys[i / 4][i % 4];
      with_key = gains[t] * (value_of<T>(v[i / 2], i % 2 == 0 ? FIRST_VALUE : SECOND_VALUE) - decayed[t] * by_key[t] * with_key);
      with_queries[i / 4][i % 4] *= decayed[t] * by_query[t];
    }
    float moves[2][4] = {};
    add_by(moves, Floats<T>(with_keys[0], with_keys[1]), solved[chunk], lane);
    add_by(with_queries, Floats<T>(moves[0], moves[1]), seen[chunk], lane);
    const int t = tile + base;
    put_results(out + (row * l + t) * (V_HEADS * DV) + head * DV + first + warp * 16, V_HEADS * DV, with_queries, l - t, lane);
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      const int t = base + i / 4 * 8 + pair + i % 2;
      moves[i / 4][i % 4] *= left[t] * by_key[t];
    }
    held.move(decayed[base + CHUNK - 1], moves, keys[buffer], base, lane);
  }
}
// The copies of the tile behind the last one, of which there is nothing.
wait_for_copies<0>();
held.store(held_at);
