// `x wᵀ` for up to 64 rows of x and packed weights, in one pass over w. A block has 16 rows of w for each warp, and a share
// of the columns, in stages of 64 that are copied ahead of their use. Tensor cores multiply 16 rows of w with 8 of x. What a
// row of x gives does not depend on the others. Weights are rounded to bf16, as where they are unpacked.
//
// A code c of four bits becomes the bf16 number 128 + c by its bits alone. The bits of a word are codes 0 and 4, 1 and 5, 2
// and 6, 3 and 7 of eight columns, so x is put in that order.

constexpr int ROWS = WARPS * 16;
constexpr int MOST = TILES * 8;
constexpr int STAGE = 64;
constexpr int W_BYTES = STAGE * BITS / 8;
constexpr int W_PIECES = W_BYTES / 16;
// Rows of x begin at other banks.
constexpr int X_BYTES = STAGE * sizeof(T) + 16;
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
const int warp = threadIdx.x / 32;
const int quad = threadIdx.x % 32 / 4;
const int part = threadIdx.x % 4;
const int first = blockIdx.x * ROWS;
const int share = (columns / STAGE / IN_UNIT + SPLITS - 1) / SPLITS * IN_UNIT;
const int begin = blockIdx.y * share;
const int end = min(columns / STAGE, begin + share);

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
    copy_ahead(to + piece * 16, from + stage * W_BYTES + piece % W_PIECES * 16, true);
  }
  if (stage % IN_UNIT == 0) {
    const int64_t row = min(first + static_cast<int>(threadIdx.x) % ROWS, rows_of_w - 1);
    const T* from = (threadIdx.x < ROWS ? scales : biases) + row * (columns / GROUP_SIZE) + stage / IN_UNIT * 8;
    copy_ahead(units + stage / IN_UNIT % 2 * UNIT_BYTES + threadIdx.x * 16, from, true);
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
        copy_ahead(memory + slot * SLOT + row * X_BYTES + piece % X_PIECES * 16, from, is_there);
      }
    }
  }
  end_copies();
};
// Two of a lane's sixteen codes, as bf16 numbers.
auto two_codes = [](const unsigned* words, int j) {
  unsigned both;
  if constexpr (BITS == 4) {
    both = (words[j / 4] >> (4 * (j % 4)) & 0x000f000f) | 0x43004300;
    constexpr unsigned RAISED = 0x43004300;
    const __nv_bfloat162 codes =
        __hsub2(*reinterpret_cast<__nv_bfloat162*>(&both), *reinterpret_cast<const __nv_bfloat162*>(&RAISED));
    return codes;
  } else {
    const unsigned word = words[j / 2];
    const float one = __uint_as_float(__byte_perm(word, 0x4b000000, j % 2 == 0 ? 0x7540 : 0x7542)) - 8388608.0f;
    const float other = __uint_as_float(__byte_perm(word, 0x4b000000, j % 2 == 0 ? 0x7541 : 0x7543)) - 8388608.0f;
    // Both have no more bits than fit.
    both = __byte_perm(__float_as_uint(one), __float_as_uint(other), 0x7632);
    return *reinterpret_cast<__nv_bfloat162*>(&both);
  }
};
float sums[TILES][4];
#pragma unroll
for (int t = 0; t < TILES; t++) {
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    sums[t][i] = 0;
  }
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
int slot = 0;
for (int stage = begin; stage < end; stage++) {
  asm volatile("cp.async.wait_group %0;" ::"n"(DEEP - 2) : "memory");
  __syncthreads();
  const int before = slot == 0 ? DEEP - 1 : slot - 1;
  copy_w(stage + DEEP - 1, before);
  copy_x(stage + DEEP - 1, before);
  const unsigned char* const of_x = memory + slot * SLOT;
  const unsigned char* const of_w = of_x + MOST * X_BYTES;
  const unsigned char* const unit = units + stage / IN_UNIT % 2 * UNIT_BYTES;
  const int group = stage % IN_UNIT * STAGE / GROUP_SIZE + (GROUP_SIZE < STAGE ? part * 16 / GROUP_SIZE : 0);
  unsigned weights[2][8];
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int row = warp * 16 + quad + 8 * i;
    struct __align__(BITS * 2) Codes {
      unsigned words[BITS / 2];
    };
    const Codes codes = *reinterpret_cast<const Codes*>(of_w + row * W_BYTES + part * BITS * 2);
    const T scale = reinterpret_cast<const T*>(unit + row * 16)[group];
    const T bias = reinterpret_cast<const T*>(unit + (ROWS + row) * 16)[group];
    const __nv_bfloat162 scale2(scale, scale);
    const __nv_bfloat162 bias2(bias, bias);
    #pragma unroll
    for (int j = 0; j < 8; j++) {
      const __nv_bfloat162 both = __hfma2(two_codes(codes.words, j), scale2, bias2);
      weights[i][j] = *reinterpret_cast<const unsigned*>(&both);
    }
  }
  #pragma unroll
  for (int t = 0; t < TILES; t++) {
    const uint4* from = reinterpret_cast<const uint4*>(of_x + (t * 8 + quad) * X_BYTES + part * 32);
    uint4 low = from[0];
    uint4 high = from[1];
    if constexpr (BITS == 4) {
      low = make_uint4(
          __byte_perm(low.x, low.z, 0x5410),
          __byte_perm(low.x, low.z, 0x7632),
          __byte_perm(low.y, low.w, 0x5410),
          __byte_perm(low.y, low.w, 0x7632));
      high = make_uint4(
          __byte_perm(high.x, high.z, 0x5410),
          __byte_perm(high.x, high.z, 0x7632),
          __byte_perm(high.y, high.w, 0x5410),
          __byte_perm(high.y, high.w, 0x7632));
    }
    multiply(sums[t], weights[0][0], weights[1][0], weights[0][1], weights[1][1], low.x, low.y);
    multiply(sums[t], weights[0][2], weights[1][2], weights[0][3], weights[1][3], low.z, low.w);
    multiply(sums[t], weights[0][4], weights[1][4], weights[0][5], weights[1][5], high.x, high.y);
    multiply(sums[t], weights[0][6], weights[1][6], weights[0][7], weights[1][7], high.z, high.w);
  }
  slot = slot + 1 == DEEP ? 0 : slot + 1;
}

// Rows of the result are written as they lie.
__syncthreads();
float* const found = reinterpret_cast<float*>(memory);
#pragma unroll
for (int t = 0; t < TILES; t++) {
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    found[(t * 8 + part * 2 + i % 2) * (ROWS + 1) + warp * 16 + quad + i / 2 * 8] = sums[t][i];
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
