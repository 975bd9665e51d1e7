// `x wᵀ` for up to 64 rows of x and packed weights, in one pass over w. A block has a share of the columns, in stages of 64 that
// are copied ahead of their use. Two warps share 32 rows of w, each with half of a stage's columns, so that fewer warps read the
// same values of x. Tensor cores multiply 16 rows of w with 8 of x. What a row of x gives does not depend on the others.
// Weights are rounded to bf16, as where they are unpacked. A code c of four bits becomes the bf16 number 128 + c by its bits alone.

constexpr int ROWS = WARPS * 16;
constexpr int PAIRS = WARPS / 2;
constexpr int MOST = TILES * 8;
constexpr int STAGE = 64;
constexpr int W_BYTES = STAGE * BITS / 8;
constexpr int W_PIECES = W_BYTES / 16;
constexpr int X_BYTES = STAGE * sizeof(T);
constexpr int X_PIECES = STAGE / 8;
// Eight scales of each row are copied at once, and eight biases.
constexpr int IN_UNIT = 8 * GROUP_SIZE / STAGE;
constexpr int UNIT_BYTES = 2 * ROWS * 16;
constexpr int SLOT = MOST * X_BYTES + ROWS * W_BYTES;
constexpr int ROOM = (48 * 1024 - 2 * UNIT_BYTES) / SLOT;
constexpr int MOST_DEEP = IN_UNIT < 5 ? IN_UNIT + 1 : 6;
constexpr int DEEP = ROOM < MOST_DEEP ? ROOM : MOST_DEEP;
constexpr int FOUND = MOST * (ROWS + 1) * sizeof(float);
constexpr int BYTES = DEEP * SLOT + 2 * UNIT_BYTES > FOUND ? DEEP * SLOT + 2 * UNIT_BYTES : FOUND;
static_assert(DEEP > 1, "copies that are under way");

__shared__ __align__(16) unsigned char memory[BYTES];
unsigned char* const units = memory + DEEP * SLOT;

let_next_begin();
int rows_of_x = 1;
for (int i = 0; i + 1 < x_ndim; i++) {
  rows_of_x *= x_shape[i];
}
const int columns = x_shape[x_ndim - 1];
const int rows_of_w = w_shape[0];
// The warp's rows of w, and its half of the columns.
const int pair = threadIdx.x / 32 % PAIRS;
const int half = threadIdx.x / 32 / PAIRS;
const int quad = threadIdx.x % 32 / 4;
const int part = threadIdx.x % 4;
const int first = blockIdx.x * ROWS;
const int share = (columns / STAGE / IN_UNIT + SPLITS - 1) / SPLITS * IN_UNIT;
const int begin = blockIdx.y * share;
const int end = min(columns / STAGE, begin + share);

// Where a piece of a row lies, so that a warp reads from all banks at once: pieces of a row are exchanged in every other row of x,
// and where rows of w, by fours or by twos, begin at the same banks.
auto w_place = [](int row, int piece) {
  return row * W_BYTES + (piece ^ (BITS == 4 ? row >> 2 & 1 : row & 2)) * 16;
};
auto x_place = [](int row, int piece) { return row * X_BYTES + (piece ^ (row & 1) * 4) * 16; };
auto copy_w = [&](int stage, int slot) {
  if (stage >= end) {
    return;
  }
  unsigned char* const to = memory + slot * SLOT + MOST * X_BYTES;
  #pragma unroll
  for (int i = 0; i < ROWS * W_PIECES / THREADS; i++) {
    const int piece = threadIdx.x + i * THREADS;
    const int64_t row = min(first + piece / W_PIECES, rows_of_w - 1);
    const unsigned char* from = reinterpret_cast<const unsigned char*>(w) + row * (columns / 8 * BITS);
    copy_ahead(to + w_place(piece / W_PIECES, piece % W_PIECES), from + stage * W_BYTES + piece % W_PIECES * 16, true);
  }
  const unsigned at = stage;
  if (at % IN_UNIT == 0) {
    const int64_t row = min(first + static_cast<int>(threadIdx.x) % ROWS, rows_of_w - 1);
    const T* from = (threadIdx.x < ROWS ? scales : biases) + row * (columns / GROUP_SIZE) + at / IN_UNIT * 8;
    copy_ahead(units + at / IN_UNIT % 2 * UNIT_BYTES + threadIdx.x * 16, from, true);
  }
};
auto copy_x = [&](int stage, int slot) {
  if (stage < end) {
    #pragma unroll
    for (int i = 0; i < (MOST * X_PIECES + THREADS - 1) / THREADS; i++) {
      const int piece = threadIdx.x + i * THREADS;
      const int row = piece / X_PIECES;
      if (row < MOST) {
        const bool is_there = row < rows_of_x;
        const T* from = x + (is_there ? row : 0) * columns + stage * STAGE + piece % X_PIECES * 8;
        copy_ahead(memory + slot * SLOT + x_place(row, piece % X_PIECES), from, is_there);
      }
    }
  }
  end_copies();
};
// A lane's eight codes as bf16 numbers, two by two.
auto unpack = [](const unsigned* words, __nv_bfloat162* codes) {
  #pragma unroll
  for (int j = 0; j < 4; j++) {
    unsigned both;
    if constexpr (BITS == 4) {
      const unsigned even = words[0] & 0x0f0f0f0f;
      const unsigned odd = words[0] >> 4 & 0x0f0f0f0f;
      const unsigned four = __byte_perm(even, odd, j < 2 ? 0x5140 : 0x7362);
      both = __byte_perm(four, 0x43434343, j % 2 == 0 ? 0x4140 : 0x4342);
      constexpr unsigned RAISED = 0x43004300;
      codes[j] = __hsub2(*reinterpret_cast<__nv_bfloat162*>(&both), *reinterpret_cast<const __nv_bfloat162*>(&RAISED));
    } else {
      const unsigned word = words[j / 2];
      const float one = __uint_as_float(__byte_perm(word, 0x4b000000, j % 2 == 0 ? 0x7540 : 0x7542)) - 8388608.0f;
      const float other = __uint_as_float(__byte_perm(word, 0x4b000000, j % 2 == 0 ? 0x7541 : 0x7543)) - 8388608.0f;
      // Both have no more bits than fit.
      both = __byte_perm(__float_as_uint(one), __float_as_uint(other), 0x7632);
      codes[j] = *reinterpret_cast<__nv_bfloat162*>(&both);
    }
  }
};
float sums[2][TILES][4];
#pragma unroll
for (int i = 0; i < 2 * TILES * 4; i++) {
  sums[i / (TILES * 4)][i / 4 % TILES][i % 4] = 0;
}

#pragma unroll
for (int i = 0; i + 1 < DEEP; i++) {
  copy_w(begin + i, i);
}
wait_for_last();
#pragma unroll
for (int i = 0; i + 1 < DEEP; i++) {
  copy_x(begin + i, i);
}
// What a lane reads of a slot, and of scales: of a half row, which is 4 · BITS bytes, it has BITS.
const int own_row = pair * 32 + quad;
const int own_bytes = half * 4 * BITS + part * BITS;
const int own_w = MOST * X_BYTES + w_place(own_row, own_bytes / 16) + own_bytes % 16;
const int own_x = x_place(quad, half * 4 + part);
const int own_group = GROUP_SIZE < STAGE ? half * STAGE / 2 / GROUP_SIZE : 0;
int slot = 0;
for (int stage = begin; stage < end; stage++) {
  wait_for_copies<DEEP - 2>();
  __syncthreads();
  const int before = slot == 0 ? DEEP - 1 : slot - 1;
  copy_w(stage + DEEP - 1, before);
  copy_x(stage + DEEP - 1, before);
  const unsigned char* const held = memory + slot * SLOT;
  const unsigned at = stage;
  const int group = at % IN_UNIT * STAGE / GROUP_SIZE + own_group;
  const T* const unit = reinterpret_cast<const T*>(units + at / IN_UNIT % 2 * UNIT_BYTES + own_row * 16) + group;
  unsigned weights[2][2][4];
  #pragma unroll
  for (int m = 0; m < 2; m++) {
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      // Rows that are eights apart lie at the same banks.
      const int further = m * 16 + i * 8;
      struct __align__(BITS) Codes {
        unsigned words[BITS / 4];
      };
      const Codes words = *reinterpret_cast<const Codes*>(held + own_w + further * W_BYTES);
      const T scale = unit[further * 8];
      const T bias = unit[(ROWS + further) * 8];
      const __nv_bfloat162 scale2(scale, scale);
      const __nv_bfloat162 bias2(bias, bias);
      __nv_bfloat162 codes[4];
      unpack(words.words, codes);
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const __nv_bfloat162 both = __hfma2(codes[j], scale2, bias2);
        weights[m][i][j] = *reinterpret_cast<const unsigned*>(&both);
      }
    }
  }
  #pragma unroll
  for (int t = 0; t < TILES; t++) {
    const uint4 x8 = *reinterpret_cast<const uint4*>(held + own_x + t * 8 * X_BYTES);
    #pragma unroll
    for (int m = 0; m < 2; m++) {
      const unsigned(*own)[4] = weights[m];
      multiply(sums[m][t], own[0][0], own[1][0], own[0][1], own[1][1], x8.x, x8.y);
      multiply(sums[m][t], own[0][2], own[1][2], own[0][3], own[1][3], x8.z, x8.w);
    }
  }
  slot = slot + 1 == DEEP ? 0 : slot + 1;
}

// Both halves' sums become one. Rows of the result are written as they lie.
float* const found = reinterpret_cast<float*>(memory);
#pragma unroll
for (int turn = 0; turn < 2; turn++) {
  __syncthreads();
  if (half == turn) {
    #pragma unroll
    for (int i = 0; i < 2 * TILES * 4; i++) {
      const int m = i / (TILES * 4), t = i / 4 % TILES, j = i % 4;
      float& to = found[(t * 8 + part * 2 + j % 2) * (ROWS + 1) + pair * 32 + m * 16 + quad + j / 2 * 8];
      to = turn == 0 ? sums[m][t][j] : to + sums[m][t][j];
    }
  }
}
__syncthreads();
for (int index = threadIdx.x; index < min(rows_of_x, MOST) * ROWS; index += THREADS) {
  const int row = index / ROWS;
  const int column = first + index % ROWS;
  if (column < rows_of_w) {
    const int64_t place = static_cast<int64_t>(blockIdx.y) * rows_of_x + row;
    out[place * rows_of_w + column] = static_cast<O>(found[row * (ROWS + 1) + index % ROWS]);
  }
}
