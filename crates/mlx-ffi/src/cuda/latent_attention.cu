// Attention of one new position of each row to what is remembered: all heads share its keys, and a value is the beginning
// of its key. A block has up to 16 · TILES heads, so that a key is read once for all of them, and a part of a row's keys,
// 32 at a time. Each warp has 64 columns of them in registers, by which it multiplies queries first, then weights; the parts
// of the scores meet in shared memory. What several blocks found of a row is brought together by another kernel.
// at: the last key. rows: for each row its first position.

constexpr int WIDTH = RANK + ROPE;
constexpr int KEYS = 32;
constexpr int EIGHTS = KEYS / 8;
constexpr int OWN = 16 * TILES;
// A line of scores, such that those of neighbours begin in different banks.
constexpr int LINE = KEYS + 8;
// Columns that are no value's are multiplied by all warps: each has some of them for eight keys.
constexpr int TURNED = ROPE / 32 * EIGHTS;
constexpr int TURNED_EACH = (TURNED + BLOCK_WARPS - 1) / BLOCK_WARPS;
constexpr int PASSES = (OWN + 4 * BLOCK_WARPS - 1) / (4 * BLOCK_WARPS);
constexpr float LOG2_E = 1.44269504f;

const int warp = threadIdx.x / 32;
const int quad = threadIdx.x % 32 / 4;
const int column = threadIdx.x % 4;
const int splits = gridDim.x;
const int split = blockIdx.x;
const int first_head = blockIdx.y * OWN;
const int row = blockIdx.z;

let_next_begin();
// Whatever the arrays hold, nothing outside of the buffer is read.
const int n = min(max(at[0], 0), held_shape[2] - 1) + 1;
const int start = min(max(rows[2 * row], 0), n);
const int share = (n - start + splits - 1) / splits;
const int first = start + split * share;
const int end = min(n, first + share);
const T* const keys = held + row * held_strides[0] + 8 * column;

__shared__ alignas(16) float products[BLOCK_WARPS][OWN][LINE];
__shared__ alignas(16) T weights[OWN][LINE];
__shared__ float factors[OWN];
__shared__ float totals[OWN];

uint4 own[EIGHTS][2];
uint4 turned[TURNED_EACH];
uint4 next[EIGHTS][2];
uint4 next_turned[TURNED_EACH];
auto load = [&](int base) {
  #pragma unroll
  for (int eight = 0; eight < EIGHTS; eight++) {
    // What is not seen repeats the last key, and then counts for nothing.
    const T* const key = keys + min(base + 8 * eight + quad, end - 1) * held_strides[2];
    #pragma unroll
    for (int read = 0; read < 2; read++) {
      next[eight][read] = *reinterpret_cast<const uint4*>(key + 64 * warp + 32 * read);
    }
  }
  #pragma unroll
  for (int i = 0; i < TURNED_EACH; i++) {
    const int item = warp + i * BLOCK_WARPS;
    if (item < TURNED) {
      const T* const key = keys + min(base + item % EIGHTS * 8 + quad, end - 1) * held_strides[2];
      next_turned[i] = *reinterpret_cast<const uint4*>(key + RANK + item / EIGHTS * 32);
    }
  }
};
// Only the last key is made by the last kernel.
const bool is_old = first + KEYS < n;
if (is_old && first < end) {
  load(first);
}
wait_for_last();
if (!is_old && first < end) {
  load(first);
}

// Of heads `quad` and the eighth one after it.
uint4 query[TILES][2][2];
uint4 turned_query[TILES][TURNED_EACH][2];
#pragma unroll
for (int t = 0; t < TILES; t++) {
  #pragma unroll
  for (int half = 0; half < 2; half++) {
    const int head = first_head + 16 * t + 8 * half + quad;
    const bool is_there = head < HEADS;
    const T* const from = queries + (static_cast<int64_t>(row) * HEADS + (is_there ? head : 0)) * WIDTH + 8 * column;
    #pragma unroll
    for (int read = 0; read < 2; read++) {
      const uint4 pack = *reinterpret_cast<const uint4*>(from + 64 * warp + 32 * read);
      query[t][read][half] = is_there ? pack : make_uint4(0, 0, 0, 0);
    }
    #pragma unroll
    for (int i = 0; i < TURNED_EACH; i++) {
      const int item = warp + i * BLOCK_WARPS;
      turned_query[t][i][half] = make_uint4(0, 0, 0, 0);
      if (is_there && item < TURNED) {
        turned_query[t][i][half] = *reinterpret_cast<const uint4*>(from + RANK + item / EIGHTS * 32);
      }
    }
  }
}
// Of heads as in `query`: columns `64 · warp + 32 · read + 8 · column + 2 · word` and the next one.
float sums[TILES][2][4][4];
#pragma unroll
for (int i = 0; i < TILES * 32; i++) {
  sums[i / 32][i / 16 % 2][i / 4 % 4][i % 4] = 0;
}
// Of the heads whose weights this thread makes, each with seven others.
float largest[PASSES];
float total[PASSES];
#pragma unroll
for (int pass = 0; pass < PASSES; pass++) {
  largest[pass] = -1e30f;
  total[pass] = 0;
}
auto multiply = [&](float* dots, const uint4* of_heads, const uint4& of_keys) {
  const unsigned low[4] = {of_heads[0].x, of_heads[1].x, of_heads[0].y, of_heads[1].y};
  const unsigned high[4] = {of_heads[0].z, of_heads[1].z, of_heads[0].w, of_heads[1].w};
  accumulate<T>(dots, low, of_keys.x, of_keys.y);
  accumulate<T>(dots, high, of_keys.z, of_keys.w);
};

for (int base = first; base < end; base += KEYS) {
  #pragma unroll
  for (int eight = 0; eight < EIGHTS; eight++) {
    own[eight][0] = next[eight][0];
    own[eight][1] = next[eight][1];
  }
  #pragma unroll
  for (int i = 0; i < TURNED_EACH; i++) {
    turned[i] = next_turned[i];
  }
  if (base + KEYS < end) {
    load(base + KEYS);
  }
  #pragma unroll
  for (int eight = 0; eight < EIGHTS; eight++) {
    #pragma unroll
    for (int t = 0; t < TILES; t++) {
      float dots[4] = {0, 0, 0, 0};
      multiply(dots, query[t][0], own[eight][0]);
      multiply(dots, query[t][1], own[eight][1]);
      #pragma unroll
      for (int i = 0; i < TURNED_EACH; i++) {
        const int item = warp + i * BLOCK_WARPS;
        if (item < TURNED && item % EIGHTS == eight) {
          multiply(dots, turned_query[t][i], turned[i]);
        }
      }
      float* const to = products[warp][16 * t + quad] + 8 * eight + 2 * column;
      *reinterpret_cast<float2*>(to) = make_float2(dots[0], dots[1]);
      *reinterpret_cast<float2*>(to + 8 * LINE) = make_float2(dots[2], dots[3]);
    }
  }
  __syncthreads();
  // Four keys of a head for each thread.
  #pragma unroll
  for (int pass = 0; pass < PASSES; pass++) {
    const int head = pass * 4 * BLOCK_WARPS + threadIdx.x / 8;
    if (head < OWN) {
      const int key = threadIdx.x % 8 * 4;
      float scores[4] = {0, 0, 0, 0};
      #pragma unroll
      for (int w = 0; w < BLOCK_WARPS; w++) {
        const float4 part = *reinterpret_cast<const float4*>(products[w][head] + key);
        scores[0] += part.x;
        scores[1] += part.y;
        scores[2] += part.z;
        scores[3] += part.w;
      }
      float highest = largest[pass];
      #pragma unroll
      for (int i = 0; i < 4; i++) {
        scores[i] = base + key + i < end ? scores[i] * __int_as_float(SCALE) * LOG2_E : -1e38f;
        highest = fmaxf(highest, scores[i]);
      }
      #pragma unroll
      for (int offset = 1; offset < 8; offset *= 2) {
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, offset));
      }
      const float factor = exp2f(largest[pass] - highest);
      largest[pass] = highest;
      total[pass] *= factor;
      alignas(8) T rounded[4];
      #pragma unroll
      for (int i = 0; i < 4; i++) {
        rounded[i] = static_cast<T>(exp2f(scores[i] - highest));
        total[pass] += static_cast<float>(rounded[i]);
      }
      *reinterpret_cast<uint2*>(weights[head] + key) = *reinterpret_cast<const uint2*>(rounded);
      if (key == 0) {
        factors[head] = factor;
      }
    }
  }
  __syncthreads();
  #pragma unroll
  for (int t = 0; t < TILES; t++) {
    const float low = factors[16 * t + quad];
    const float high = factors[16 * t + quad + 8];
    if (__any_sync(0xffffffff, low != 1.0f || high != 1.0f)) {
      #pragma unroll
      for (int i = 0; i < 32; i++) {
        sums[t][i / 16][i / 4 % 4][i % 4] *= i % 4 < 2 ? low : high;
      }
    }
  }
  #pragma unroll
  for (int half = 0; half < KEYS / 16; half++) {
    unsigned by[TILES][4];
    #pragma unroll
    for (int t = 0; t < TILES; t++) {
      #pragma unroll
      for (int i = 0; i < 4; i++) {
        const T* const from = weights[16 * t + quad + i % 2 * 8] + 16 * half + i / 2 * 8 + 2 * column;
        by[t][i] = *reinterpret_cast<const unsigned*>(from);
      }
    }
    #pragma unroll
    for (int read = 0; read < 2; read++) {
      const uint4& low = own[2 * half][read];
      const uint4& high = own[2 * half + 1][read];
      const unsigned lows[4] = {low.x, low.y, low.z, low.w};
      const unsigned highs[4] = {high.x, high.y, high.z, high.w};
      #pragma unroll
      for (int word = 0; word < 4; word++) {
        const unsigned first_keys = transposed(lows[word]);
        const unsigned last_keys = transposed(highs[word]);
        #pragma unroll
        for (int t = 0; t < TILES; t++) {
          accumulate<T>(sums[t][read][word], by[t], first_keys, last_keys);
        }
      }
    }
  }
}

#pragma unroll
for (int pass = 0; pass < PASSES; pass++) {
  const int head = pass * 4 * BLOCK_WARPS + threadIdx.x / 8;
  if (head < OWN) {
    #pragma unroll
    for (int offset = 1; offset < 8; offset *= 2) {
      total[pass] += __shfl_xor_sync(0xffffffff, total[pass], offset);
    }
    if (threadIdx.x % 8 == 0) {
      totals[head] = total[pass];
      if (splits > 1 && first_head + head < HEADS) {
        const int64_t part = (static_cast<int64_t>(row) * HEADS + first_head + head) * splits + split;
        parts[2 * part] = largest[pass];
        parts[2 * part + 1] = total[pass];
      }
    }
  }
}
__syncthreads();
#pragma unroll
for (int t = 0; t < TILES; t++) {
  #pragma unroll
  for (int half = 0; half < 2; half++) {
    const int own_head = 16 * t + 8 * half + quad;
    const int head = first_head + own_head;
    if (head < HEADS) {
      const int64_t head_at = static_cast<int64_t>(row) * HEADS + head;
      const float all = totals[own_head];
      const float by = all > 0 ? 1.0f / all : 0.0f;
      #pragma unroll
      for (int read = 0; read < 2; read++) {
        const int at_column = 64 * warp + 32 * read + 8 * column;
        if (splits > 1) {
          float* const to = partial + (head_at * splits + split) * RANK + at_column;
          #pragma unroll
          for (int word = 0; word < 4; word += 2) {
            const float* const a = sums[t][read][word] + 2 * half;
            const float* const b = sums[t][read][word + 1] + 2 * half;
            *reinterpret_cast<float4*>(to + 2 * word) = make_float4(a[0], a[1], b[0], b[1]);
          }
        } else {
          unsigned made[4];
          #pragma unroll
          for (int word = 0; word < 4; word++) {
            const float* const a = sums[t][read][word] + 2 * half;
            made[word] = two_of<T>(a[0] * by, a[1] * by);
          }
          *reinterpret_cast<uint4*>(out + head_at * RANK + at_column) = make_uint4(made[0], made[1], made[2], made[3]);
        }
      }
    }
  }
}
