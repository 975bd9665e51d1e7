// The selective scan of Mamba 2 over many positions, on the tensor cores, as delta_tiles.cu takes them. Each warp of a block holds 16 rows of a head's
// state in registers. blockIdx.y is the head, blockIdx.z the row of the batch. The state is written in place: nobody else reads the rows that a
// block holds.
//
// Of a chunk of positions, S is the state before it, and g(t) the product of its decays up to t. The result of t is
//   g(t) S c(t) + sum of seen(t, s) step(s) x(s) for s <= t, where seen(t, s) = g(t) / g(s) c(t) · b(s).
// Floats are multiplied as two halves.

constexpr int CHUNKS = TILE / CHUNK;
constexpr int LINES = BLOCK_WARPS * 16;
constexpr int UNITS = N / 8;
constexpr int VALUE_UNITS = LINES / 8;
constexpr int INNER = HEADS * P;
constexpr int MIXED = INNER + 2 * GROUPS * N;
static_assert(TILE == 32 && BLOCK_WARPS >= CHUNKS, "a lane for each position, and a warp for each chunk");
let_next_begin();
wait_for_last();
// b and c.
__shared__ alignas(16) T writes[2][TILE * N];
__shared__ alignas(16) T reads[2][TILE * N];
__shared__ alignas(16) T values[2][TILE * LINES];
// As two halves.
__shared__ alignas(16) T seen[CHUNKS][2][CHUNK * CHUNK];
// For each position: its step, the sum of the logarithms of its chunk's decays up to there, g, and the decay from there to the end of its chunk.
__shared__ float steps[TILE];
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
const int64_t dt_columns = dt_shape[2];
const int first = blockIdx.x * LINES;
const int count = HAS_LENGTHS ? min(max(lengths[row], 0), l) : l;
const T* const own = mixed + row * l * MIXED;
const int b_at = INNER + head / (HEADS / GROUPS) * N;
auto load = [&](int tile, int buffer) {
  const T* const from = own + static_cast<int64_t>(tile) * MIXED;
  copy_rows<UNITS, TILE>(writes[buffer], from + b_at, MIXED, count - tile);
  copy_rows<UNITS, TILE>(reads[buffer], from + b_at + GROUPS * N, MIXED, count - tile);
  copy_rows<VALUE_UNITS, TILE>(values[buffer], from + head * P + first, MIXED, count - tile);
  end_copies();
};
// What the first warp brings of each position.
float dt_next = 0;
auto load_steps = [&](int tile) {
  const int t = tile + lane;
  if (warp == 0 && t < count) {
    dt_next = static_cast<float>(dt[(row * l + t) * dt_columns + DT_AT + head]);
  }
};
load(0, 0);
load_steps(0);
float* const held_at = const_cast<float*>(state) + ((row * HEADS + head) * P + first + warp * 16 + group) * N + pair;
StateRows<T, UNITS> held;
held.load(held_at);
const float rate = -expf(a_log[head]);
const float added = dt_bias[head];
const float passed = d[head];
for (int tile = 0, buffer = 0; tile < l; tile += TILE, buffer ^= 1) {
  wait_for_copies<0>();
  __syncthreads();
  load(tile + TILE, buffer ^ 1);
  if (warp == 0) {
    // Positions that do not count leave the state as it is.
    const bool counts = tile + lane < count;
    const float step = fminf(fmaxf(softplus(dt_next + added), __int_as_float(LEAST)), __int_as_float(LARGEST));
    float all;
    const float sum = sums_of_chunks(counts ? rate * step : 0.0f, all, lane);
    steps[lane] = counts ? step : 0.0f;
    logs[lane] = sum;
    decayed[lane] = expf(sum);
    left[lane] = expf(all - sum);
    load_steps(tile + TILE);
  }
  const int own_first = warp * CHUNK;
  float of_writes[2][4] = {};
  if (warp < CHUNKS) {
    products_of_rows<UNITS>(of_writes, reads[buffer], writes[buffer], own_first, lane);
  }
  __syncthreads();
  if (warp < CHUNKS) {
    #pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const int at = group + i / 2 % 2 * 8;
      const int column = i / 4 * 8 + pair;
      float found[2];
      #pragma unroll
      for (int n = 0; n < 2; n++) {
        const float decay = expf(logs[own_first + at] - logs[own_first + column + n]);
        found[n] = column + n <= at ? decay * of_writes[i / 4][i % 4 + n] : 0.0f;
      }
      put_seen(seen[warp], at * CHUNK + column, found);
    }
  }
  __syncthreads();
  for (int chunk = 0; chunk < CHUNKS; chunk++) {
    const int base = chunk * CHUNK;
    float sums[2][4] = {};
    #pragma unroll
    for (int k = 0; k < UNITS / 2; k++) {
      add_products<UNITS>(sums, held.columns(k), reads[buffer], base, k, lane);
    }
    unsigned x[4];
    load_transposed(x, unit_at<VALUE_UNITS>(values[buffer], base + row_beside(lane), warp * 2 + lane / 8 % 2));
    float moves[2][4];
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      const int t = base + i / 4 * 8 + pair + i % 2;
      const float own_x = value_of<T>(x[i / 2], i % 2 == 0 ? FIRST_VALUE : SECOND_VALUE);
      moves[i / 4][i % 4] = steps[t] * own_x;
      sums[i / 4][i % 4] = decayed[t] * sums[i / 4][i % 4] + passed * own_x;
    }
    add_by(sums, Floats<T>(moves[0], moves[1]), seen[chunk], lane);
    const int t = tile + base;
    put_results(out + (row * l + t) * INNER + head * P + first + warp * 16, INNER, sums, l - t, lane);
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      moves[i / 4][i % 4] *= left[base + i / 4 * 8 + pair + i % 2];
    }
    held.move(decayed[base + CHUNK - 1], moves, writes[buffer], base, lane);
  }
}
// The copies of the tile behind the last one, of which there is nothing.
wait_for_copies<0>();
held.store(held_at);
