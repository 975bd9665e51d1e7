// Attention of several new positions of each row to all from the row's first one to themselves: flash attention
// on the tensor cores. A block has QUERIES positions of one head, a warp 16 of them; keys and values come KEYS at
// a time, the next ones while the last are multiplied.
// queries: [b, l, heads, D]. at, rows: as where the positions were written. sinks: queries, where there are none.

constexpr int KEYS = D >= 256 ? 16 : D >= 128 ? 32 : 64;
// Sixteen bytes are moved at once.
constexpr int PACK = 8;
constexpr int PACKS = D / PACK;
constexpr int ROWS_OF_BANKS = PACKS < 8 ? 8 / PACKS : 1;
constexpr int TILES = KEYS / 8;
constexpr int VALUES = D / 8;
constexpr float LOG2_E = 1.44269504f;

const int warp = threadIdx.x / 32;
const int lane = threadIdx.x % 32;
const int head = blockIdx.y;
const int row = blockIdx.z;
const int heads = gridDim.y;
const int l = queries_shape[1];
// The last ones see the most keys, so they begin first.
const int first_query = (static_cast<int>(gridDim.x - 1 - blockIdx.x)) * QUERIES;

let_next_begin();
wait_for_last();
// Whatever the arrays hold, nothing outside of the buffers is read.
const int base = min(max(at[0], 0), keys_shape[2] - l);
const int end = base + min(first_query + QUERIES, l);
const int start = min(max(rows[2 * row], 0), end);
const int first = max(start, WINDOW > 0 ? base + first_query + 1 - WINDOW : 0);
const T* const own_keys = keys + row * keys_strides[0] + head / SHARED_BY * keys_strides[1];
const T* const own_values = values + row * values_strides[0] + head / SHARED_BY * values_strides[1];

// Keys and values of two tiles; before them, the queries.
__shared__ alignas(128) T tiles[2][2][KEYS * D];
T* const staged = &tiles[0][0][0];
// Where a pack of a row lies, so that the same pack of eight rows is in all banks.
auto place = [](int of, int pack) {
  return (of * PACKS + (pack ^ (of / ROWS_OF_BANKS & (PACKS < 8 ? PACKS - 1 : 7)))) * PACK;
};
auto load = [&](int tile, int from) {
  for (int i = threadIdx.x; i < KEYS * PACKS; i += ATTENDING) {
    const int of = i / PACKS, pack = i % PACKS;
    const bool is_there = from + of < end;
    const int64_t index = is_there ? from + of : max(end - 1, 0);
    copy_ahead(tiles[tile][0] + place(of, pack), own_keys + index * keys_strides[2] + pack * PACK, is_there);
    copy_ahead(tiles[tile][1] + place(of, pack), own_values + index * values_strides[2] + pack * PACK, is_there);
  }
  end_copies();
};

// A warp's queries, sixteen columns of the tensor cores' operand at a time.
unsigned query[D / 16][4];
static_assert(4 * KEYS * D >= QUERIES * D, "room for the queries");
for (int i = threadIdx.x; i < QUERIES * PACKS; i += ATTENDING) {
  const int of = i / PACKS, pack = i % PACKS;
  const int64_t index = static_cast<int64_t>(row) * l + min(first_query + of, l - 1);
  copy_ahead(staged + place(of, pack), queries + (index * heads + head) * D + pack * PACK, true);
}
end_copies();
end_copies();
wait_for_copies();
__syncthreads();
#pragma unroll
for (int i = 0; i < D / 16; i++) {
  load_matrices(query[i], staged + place(warp * 16 + lane % 16, 2 * i + lane / 16));
}
__syncthreads();

float sums[VALUES][4];
#pragma unroll
for (int i = 0; i < VALUES; i++) {
  #pragma unroll
  for (int j = 0; j < 4; j++) {
    sums[i][j] = 0;
  }
}
// A thread has values of two queries.
float largest[2] = {-1e30f, -1e30f};
float total[2] = {0, 0};
const int last_seen[2] = {
    base + first_query + warp * 16 + lane / 4, base + first_query + warp * 16 + lane / 4 + 8};
const float scale = __int_as_float(SCALE);
const float softcap = __int_as_float(SOFTCAP);

int tile = 0;
load(0, first);
for (int from = first; from < end; from += KEYS, tile ^= 1) {
  if (from + KEYS < end) {
    load(tile ^ 1, from + KEYS);
  } else {
    end_copies();
  }
  wait_for_copies();
  __syncthreads();
  float scores[TILES][4];
  #pragma unroll
  for (int t = 0; t < TILES; t++) {
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      scores[t][j] = 0;
    }
  }
  #pragma unroll
  for (int i = 0; i < D / 16; i++) {
    #pragma unroll
    for (int t = 0; t < TILES; t += 2) {
      unsigned key[4];
      load_matrices(key, tiles[tile][0] + place(t * 8 + lane / 16 * 8 + lane % 8, 2 * i + lane / 8 % 2));
      accumulate<T>(scores[t], query[i], key[0], key[1]);
      accumulate<T>(scores[t + 1], query[i], key[2], key[3]);
    }
  }
  // Whether all of a warp's queries see all of these keys.
  const int own_first = base + first_query + warp * 16;
  const bool sees_all =
      from + KEYS - 1 <= own_first && (WINDOW == 0 || from > own_first + 15 - WINDOW);
  float highest[2] = {largest[0], largest[1]};
  #pragma unroll
  for (int t = 0; t < TILES; t++) {
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      float score = scores[t][j] * scale;
      if (SOFTCAP != 0) {
        score = softcap * tanhf(score / softcap);
      }
      score *= LOG2_E;
      if (!sees_all) {
        const int key = from + t * 8 + lane % 4 * 2 + j % 2;
        const int last = last_seen[j / 2];
        const bool seen = key <= last && (WINDOW == 0 || key > last - WINDOW);
        score = seen ? score : -1e38f;
      }
      scores[t][j] = score;
      highest[j / 2] = fmaxf(highest[j / 2], score);
    }
  }
  #pragma unroll
  for (int q = 0; q < 2; q++) {
    highest[q] = fmaxf(highest[q], __shfl_xor_sync(0xffffffff, highest[q], 1));
    highest[q] = fmaxf(highest[q], __shfl_xor_sync(0xffffffff, highest[q], 2));
    const float factor = exp2f(largest[q] - highest[q]);
    largest[q] = highest[q];
    total[q] *= factor;
    #pragma unroll
    for (int i = 0; i < VALUES; i++) {
      sums[i][2 * q] *= factor;
      sums[i][2 * q + 1] *= factor;
    }
  }
  unsigned weights[TILES][2];
  #pragma unroll
  for (int t = 0; t < TILES; t++) {
    #pragma unroll
    for (int q = 0; q < 2; q++) {
      const float one = exp2f(scores[t][2 * q] - highest[q]);
      const float other = exp2f(scores[t][2 * q + 1] - highest[q]);
      total[q] += one + other;
      weights[t][q] = two_of<T>(one, other);
    }
  }
  #pragma unroll
  for (int t = 0; t < TILES; t += 2) {
    const unsigned weight[4] = {weights[t][0], weights[t][1], weights[t + 1][0], weights[t + 1][1]};
    #pragma unroll
    for (int i = 0; i < VALUES; i += 2) {
      unsigned value[4];
      load_transposed(value, tiles[tile][1] + place(t * 8 + lane % 16, i + lane / 16));
      accumulate<T>(sums[i], weight, value[0], value[1]);
      accumulate<T>(sums[i + 1], weight, value[2], value[3]);
    }
  }
  __syncthreads();
}

#pragma unroll
for (int q = 0; q < 2; q++) {
  total[q] += __shfl_xor_sync(0xffffffff, total[q], 1);
  total[q] += __shfl_xor_sync(0xffffffff, total[q], 2);
  float factor = 1;
  if (HAS_SINKS) {
    const float sink = static_cast<float>(sinks[head]) * LOG2_E;
    const float highest = fmaxf(largest[q], sink);
    factor = exp2f(largest[q] - highest);
    total[q] = total[q] * factor + exp2f(sink - highest);
  }
  const int query_at = first_query + warp * 16 + lane / 4 + 8 * q;
  if (query_at < l) {
    const float part = total[q] > 0 ? factor / total[q] : 0.0f;
    T* const to = out + ((static_cast<int64_t>(row) * l + query_at) * heads + head) * D + lane % 4 * 2;
    #pragma unroll
    for (int i = 0; i < VALUES; i++) {
      *reinterpret_cast<unsigned*>(to + i * 8) = two_of<T>(sums[i][2 * q] * part, sums[i][2 * q + 1] * part);
    }
  }
}
