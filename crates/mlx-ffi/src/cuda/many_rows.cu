// `x wᵀ` for 33 to 64 rows of x and packed weights, in one pass over w. Each warp has 32 rows of w, of which it loads the codes ahead of
// their use. Those of x lie in shared memory, in stages, for all warps of the block. Blocks may share the columns. Tensor cores multiply
// 16 rows of w with 8 of x; what a row of x gives does not depend on the others. Weights are rounded to bf16, as where they are
// unpacked. A code c of four bits becomes the bf16 number 128 + c by its bits alone.
// With a GATE, half of a block's rows of w are of the first half of them, which gates the other. Blocks that share the columns have none.

constexpr int OWN_ROWS = 32;
constexpr int ROWS = ROW_WARPS * OWN_ROWS;
constexpr int BLOCK = ROW_WARPS * 32;
constexpr int TILES = 8;
constexpr int MOST = TILES * 8;
// Columns of a stage, of each of whose rows a lane loads sixteen bytes.
constexpr int STAGE = 512 / BITS;
// Times that a lane takes eight columns.
constexpr int EIGHTS = STAGE / 32;
constexpr int X_BYTES = STAGE * sizeof(T);
constexpr int X_PIECES = STAGE / 8;
constexpr int X_COPIES = MOST * X_PIECES / BLOCK;
constexpr int SLOT = MOST * X_BYTES;
// Scales and biases of so many columns are copied at once.
constexpr int STAGES = UNIT / STAGE;
constexpr int GROUPS = UNIT / GROUP_SIZE;
constexpr int GROUP_BYTES = GROUPS * sizeof(T);
constexpr int UNIT_BYTES = 2 * ROWS * GROUP_BYTES;
constexpr int UNIT_COPIES = 2 * ROWS / BLOCK;
constexpr int FOUND_ROW = ROWS + 4;
constexpr int FOUND = MOST * FOUND_ROW * sizeof(float);
constexpr int HELD = 2 * SLOT + 2 * UNIT_BYTES;
static_assert(STAGES * STAGE == UNIT && BLOCK % X_PIECES == 0 && BLOCK / X_PIECES % 2 == 0, "whole stages");
static_assert(X_COPIES * BLOCK == MOST * X_PIECES && UNIT_COPIES * BLOCK == 2 * ROWS, "whole copies");

__shared__ __align__(16) unsigned char memory[HELD > FOUND ? HELD : FOUND];
unsigned char* const units = memory + 2 * SLOT;

let_next_begin();
int rows_of_x = 1;
for (int i = 0; i + 1 < x_ndim; i++) {
  rows_of_x *= x_shape[i];
}
const int columns = x_shape[x_ndim - 1];
const int rows_of_w = w_shape[0];
const int warp = threadIdx.x / 32;
const int quad = threadIdx.x % 32 / 4;
const int part = threadIdx.x % 4;
// The last block may have rows of the one before it, for which both find the same.
constexpr int SIDES = GATE == 0 ? 1 : 2;
constexpr int TOGETHER = ROWS / SIDES;
const int first = min(static_cast<int>(blockIdx.x) * TOGETHER, rows_of_w / SIDES - TOGETHER);
// Where a row of the block is in w.
auto row_of = [&](int row) { return first + row + (row < TOGETHER ? 0 : rows_of_w / SIDES - TOGETHER); };
const int share = (columns / UNIT + SPLITS - 1) / SPLITS * STAGES;
const int begin = blockIdx.y * share;
int left = min(columns / STAGE - begin, share);

// Where a piece of a row of x lies, so that a warp reads from all banks at once.
auto x_place = [](int row, int piece) {
  return row * X_BYTES + (BITS == 4 ? piece ^ piece >> 3 ^ (row & 1) * 2 : piece ^ (row & 1)) * 16;
};
const int own_row = warp * OWN_ROWS + quad;
const int row_bytes = columns / 8 * BITS;
const unsigned char* from_w = reinterpret_cast<const unsigned char*>(w) +
    static_cast<int64_t>(row_of(own_row)) * row_bytes + begin * 64 + part * 16;
uint4 next[4];
auto load_w = [&]() {
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    next[i] = *reinterpret_cast<const uint4*>(from_w + i * 8 * static_cast<int64_t>(row_bytes));
  }
  from_w += 64;
};
const int row_of_x = threadIdx.x / X_PIECES;
const int piece_of_x = threadIdx.x % X_PIECES;
unsigned char* const to_x = memory + x_place(row_of_x, piece_of_x);
const T* from_x = x + begin * STAGE + piece_of_x * 8;
// Rows that are not there are the last one: what they give is not read.
int x_rows[X_COPIES];
#pragma unroll
for (int i = 0; i < X_COPIES; i++) {
  x_rows[i] = min(row_of_x + i * (BLOCK / X_PIECES), rows_of_x - 1) * columns;
}
auto copy_x = [&](int slot) {
  #pragma unroll
  for (int i = 0; i < X_COPIES; i++) {
    copy_ahead(to_x + slot * SLOT + i * (BLOCK / X_PIECES) * X_BYTES, from_x + x_rows[i], true);
  }
  from_x += STAGE;
  end_copies();
};
const T* from_units[UNIT_COPIES];
#pragma unroll
for (int i = 0; i < UNIT_COPIES; i++) {
  const int index = threadIdx.x + i * BLOCK;
  from_units[i] = (index < ROWS ? scales : biases) +
      static_cast<int64_t>(row_of(index % ROWS)) * (columns / GROUP_SIZE) + begin / STAGES * GROUPS;
}
auto copy_units = [&](unsigned stage) {
  if (stage % STAGES == 0) {
    #pragma unroll
    for (int i = 0; i < UNIT_COPIES; i++) {
      copy_few_ahead<GROUP_BYTES>(
          units + stage / STAGES % 2 * UNIT_BYTES + (threadIdx.x + i * BLOCK) * GROUP_BYTES, from_units[i]);
      from_units[i] += GROUPS;
    }
  }
};
// A lane's eight codes as bf16 numbers, two by two, times the scale and with the bias.
auto weights_of = [](const unsigned* words, __nv_bfloat162 scale, __nv_bfloat162 bias, unsigned* to) {
  #pragma unroll
  for (int j = 0; j < 4; j++) {
    unsigned codes;
    if constexpr (BITS == 4) {
      const unsigned even = words[0] & 0x0f0f0f0f;
      const unsigned odd = words[0] >> 4 & 0x0f0f0f0f;
      const unsigned four = __byte_perm(even, odd, j < 2 ? 0x5140 : 0x7362);
      const unsigned both = __byte_perm(four, 0x43434343, j % 2 == 0 ? 0x4140 : 0x4342);
      constexpr unsigned RAISED = 0x43004300;
      const __nv_bfloat162 numbers =
          __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&both), *reinterpret_cast<const __nv_bfloat162*>(&RAISED));
      codes = *reinterpret_cast<const unsigned*>(&numbers);
    } else {
      codes = two_codes(words, 2 * j, 2 * j + 1);
    }
    const __nv_bfloat162 values = __hfma2(*reinterpret_cast<const __nv_bfloat162*>(&codes), scale, bias);
    to[j] = *reinterpret_cast<const unsigned*>(&values);
  }
};
float sums[2][TILES][4];
#pragma unroll
for (int i = 0; i < 2 * TILES * 4; i++) {
  sums[i / (TILES * 4)][i / 4 % TILES][i % 4] = 0;
}

load_w();
copy_units(begin);
wait_for_last();
copy_x(0);
// A lane's columns of a slab are in one group.
const int own_group = GROUP_SIZE < STAGE ? part * (STAGE / 4) / GROUP_SIZE : 0;
int slot = 0;
for (unsigned stage = begin; left > 0; stage++, left--) {
  uint4 own[4];
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    own[i] = next[i];
  }
  if (left > 1) {
    load_w();
  }
  wait_for_copies<0>();
  __syncthreads();
  if (left > 1) {
    copy_units(stage + 1);
    copy_x(1 - slot);
  }
  const int group = stage % STAGES * STAGE / GROUP_SIZE + own_group;
  const T* const unit = reinterpret_cast<const T*>(units + stage / STAGES % 2 * UNIT_BYTES) + own_row * GROUPS + group;
  __nv_bfloat162 scale[4];
  __nv_bfloat162 bias[4];
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    const T of_row = unit[i * 8 * GROUPS];
    const T added = unit[(ROWS + i * 8) * GROUPS];
    scale[i] = __nv_bfloat162(of_row, of_row);
    bias[i] = __nv_bfloat162(added, added);
  }
  #pragma unroll
  for (int e = 0; e < EIGHTS; e++) {
    uint4 x8[TILES];
    #pragma unroll
    for (int t = 0; t < TILES; t++) {
      const int place = x_place(quad, part * EIGHTS + e) + t * 8 * X_BYTES;
      x8[t] = *reinterpret_cast<const uint4*>(memory + slot * SLOT + place);
    }
    #pragma unroll
    for (int m = 0; m < 2; m++) {
      unsigned weights[2][4];
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        const uint4 all = own[m * 2 + i];
        const unsigned words[4] = {all.x, all.y, all.z, all.w};
        weights_of(words + e * (BITS / 4), scale[m * 2 + i], bias[m * 2 + i], weights[i]);
      }
      #pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const unsigned a[4] = {weights[0][j], weights[1][j], weights[0][j + 1], weights[1][j + 1]};
        #pragma unroll
        for (int t = 0; t < TILES; t++) {
          accumulate<T>(sums[m][t], a, j == 0 ? x8[t].x : x8[t].z, j == 0 ? x8[t].y : x8[t].w);
        }
      }
    }
  }
  slot = 1 - slot;
}

// Rows of the result are written as they lie.
float* const found = reinterpret_cast<float*>(memory);
__syncthreads();
#pragma unroll
for (int i = 0; i < 2 * TILES * 4; i++) {
  const int m = i / (TILES * 4), t = i / 4 % TILES, j = i % 4;
  found[(t * 8 + part * 2 + j % 2) * FOUND_ROW + own_row + m * 16 + j / 2 * 8] = sums[m][t][j];
}
__syncthreads();
const int all = rows_of_w / SIDES;
for (int index = threadIdx.x; index < min(rows_of_x, MOST) * (TOGETHER / 4); index += BLOCK) {
  const int row = index / (TOGETHER / 4);
  const int column = index % (TOGETHER / 4) * 4;
  const int64_t place = (static_cast<int64_t>(blockIdx.y) * rows_of_x + row) * all + row_of(column);
  const float* const four = found + row * FOUND_ROW + column;
  if constexpr (SPLITS > 1) {
    *reinterpret_cast<float4*>(out + place) = *reinterpret_cast<const float4*>(four);
  } else {
    O results[4];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      results[i] = static_cast<O>(four[i]);
      if constexpr (GATE != 0) {
        results[i] = gated<GATE>(results[i], static_cast<O>(four[TOGETHER + i]));
      }
    }
    *reinterpret_cast<uint2*>(out + place) = *reinterpret_cast<const uint2*>(results);
  }
}
