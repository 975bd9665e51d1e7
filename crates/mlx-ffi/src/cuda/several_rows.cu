// `x wᵀ` for several rows of x, in one pass over w. A block has its own rows of w, and with others as many columns. It copies what it
// multiplies next into a ring in shared memory, some stages ahead. Its warps share the columns of a stage.
//
// Tensor cores multiply 16 rows of w with 8 of x; what a row of x gives does not depend on the others. Packed weights are rounded to T,
// as where they are unpacked. With a GATE, half of a block's rows of w are of the first half of them, which gates the other.
// TILES: of eight rows of x. OWN_TILES: of 16 rows of w. STAGE: columns. WHOLE: they fit into all columns. SLOTS: stages of the ring.
// MEMORY: bytes of the launch's shared memory.
// Blocks that share the columns write sums of their own, as float, and have no GATE.

constexpr bool PACKED = BITS < 16;
constexpr int ROWS = 16 * OWN_TILES;
constexpr int BLOCK = STAGE_WARPS * 32;
constexpr int MOST = TILES * 8;
// Columns of a warp in a stage, of each of whose rows a lane has OF_LANE bytes. It takes eight columns at a time.
constexpr int SLAB = STAGE / STAGE_WARPS;
constexpr int EIGHTS = SLAB / 32;
constexpr int OF_LANE = SLAB * BITS / 32;
static_assert(EIGHTS * 32 == SLAB && EIGHTS <= 2 && OF_LANE <= 16, "loads of a lane");
// Bytes of a row of w and of one of x, in pieces of sixteen.
constexpr int W_LINE = STAGE * BITS / 8;
constexpr int X_LINE = STAGE * sizeof(T);
constexpr int W_PIECES = W_LINE / 16;
constexpr int X_PIECES = X_LINE / 16;
static_assert(W_PIECES % 8 == 0 && X_PIECES % 8 == 0, "rows of all banks");
// Scales of a row in a stage, and copies that bring them all. Where stages are not WHOLE, each brings two values, of which the first scale may be
// the second one.
constexpr int GROUPS = PACKED ? STAGE / GROUP_SIZE : 0;
constexpr int OF_ROW = WHOLE ? 1 : GROUPS / 2 + 1;
constexpr int OF_COPY = WHOLE ? GROUPS * 2 : 4;
static_assert(GROUPS % 2 == 0, "all stages of a row begin alike");
constexpr int X_AT = ROWS * W_LINE;
constexpr int SCALES_AT = X_AT + MOST * X_LINE;
constexpr int SLOT = SCALES_AT + (PACKED ? 2 * ROWS * OF_ROW * OF_COPY : 0);
constexpr int FOUND_ROW = ROWS + 4;
static_assert(SLOTS >= 2 && MEMORY >= SLOTS * SLOT && MEMORY >= STAGE_WARPS * MOST * FOUND_ROW * 4, "room for what comes, and for sums");
constexpr int SIDES = GATE == 0 ? 1 : 2;
constexpr int TOGETHER = ROWS / SIDES;

let_next_begin();
int rows_of_x = 1;
for (int i = 0; i + 1 < x_ndim; i++) {
  rows_of_x *= x_shape[i];
}
const int columns = x_shape[x_ndim - 1];
const int groups = PACKED ? columns / GROUP_SIZE : 0;
const int rows_of_half = w_shape[0] / SIDES;
const int warp = threadIdx.x / 32;
const int quad = threadIdx.x % 32 / 4;
const int part = threadIdx.x % 4;
const int first = blockIdx.x * TOGETHER;
// Where a row of the block is in w, and whether it is there.
auto row_of = [&](int row) { return first + row % TOGETHER + row / TOGETHER * rows_of_half; };
auto is_row = [&](int row) { return first + row % TOGETHER < rows_of_half; };
const int all_stages = (columns + STAGE - 1) / STAGE;
const int begin = static_cast<int64_t>(all_stages) * blockIdx.y / gridDim.y;
const int count = static_cast<int64_t>(all_stages) * (blockIdx.y + 1) / gridDim.y - begin;

const Shared memory = memory_of_launch();
const Shared end_of_ring = memory + SLOTS * SLOT;
// Where a piece of a row lies, so that a warp reads from all banks at once: lanes of a row read TOUCHED pieces of w side by side.
constexpr int TOUCHED = OF_LANE / 4;
auto w_place = [](int row, int piece) { return row * W_LINE + (piece ^ row % (8 / TOUCHED) * TOUCHED) * 16; };
auto x_place = [](int row, int piece) { return row * X_LINE + (piece ^ row % 2 * (EIGHTS == 1 ? 4 : 1)) * 16; };

// A thread copies pieces of several rows, which are by as many further as all threads copy at once, and so lie by as many bytes further.
constexpr int W_APART = BLOCK / W_PIECES;
constexpr int X_APART = BLOCK / X_PIECES;
constexpr int W_COPIES = (ROWS + W_APART - 1) / W_APART;
constexpr int X_COPIES = (MOST + X_APART - 1) / X_APART;
static_assert(W_APART * W_PIECES == BLOCK && X_APART * X_PIECES == BLOCK && W_APART % 8 == 0 && X_APART % 2 == 0, "rows of a thread");
constexpr int SCALE_COPIES = PACKED ? (2 * ROWS * OF_ROW + BLOCK - 1) / BLOCK : 0;
// Where it copies from in stage 0, where to, and the stages in which there is something to copy.
const int w_row = threadIdx.x / W_PIECES, w_piece = threadIdx.x % W_PIECES;
const int x_row = threadIdx.x / X_PIECES, x_piece = threadIdx.x % X_PIECES;
const int w_to = w_place(w_row, w_piece);
const int x_to = X_AT + x_place(x_row, x_piece);
const char* w_from[W_COPIES];
int w_stages[W_COPIES];
const int64_t row_bytes = static_cast<int64_t>(columns) * BITS / 8;
#pragma unroll
for (int i = 0; i < W_COPIES; i++) {
  const int row = w_row + i * W_APART;
  const bool is_there = row < ROWS && is_row(row);
  w_from[i] = reinterpret_cast<const char*>(w) + (is_there ? row_of(row) * row_bytes + w_piece * 16 : 0);
  w_stages[i] = is_there ? static_cast<int>((row_bytes - w_piece * 16 + W_LINE - 1) / W_LINE) : 0;
}
const T* const x_from = x + static_cast<int64_t>(min(x_row, rows_of_x - 1)) * columns + x_piece * 8;
const int x_stages = (columns - x_piece * 8 + STAGE - 1) / STAGE;
const char* scales_from[SCALE_COPIES + 1];
// Values of the row from there on.
int scales_left[SCALE_COPIES + 1];
// Whether a row's scales begin with the second one of a word.
auto is_odd = [&](const void* of_row) { return !WHOLE && reinterpret_cast<unsigned long long>(of_row) / 2 % 2 != 0; };
#pragma unroll
for (int i = 0; i < SCALE_COPIES; i++) {
  const int index = threadIdx.x + i * BLOCK;
  const int row = index / OF_ROW % ROWS;
  const bool is_there = index < 2 * ROWS * OF_ROW && is_row(row);
  const T* const of = index < ROWS * OF_ROW ? scales : biases;
  const T* const of_row = of + (is_there ? static_cast<int64_t>(row_of(row)) * groups : 0);
  const int before = is_there ? index % OF_ROW * 2 - is_odd(of_row) : -is_odd(of_row);
  scales_from[i] = reinterpret_cast<const char*>(of_row + before);
  scales_left[i] = is_there ? groups - before : 0;
}
auto copy_w = [&](int stage, Shared to) {
  #pragma unroll
  for (int i = 0; i < W_COPIES; i++) {
    if (W_COPIES * W_APART == ROWS || w_row + i * W_APART < ROWS) {
      const bool is_there = stage < w_stages[i];
      copy_to<16>(to + w_to + i * W_APART * W_LINE, w_from[i] + (is_there ? static_cast<int64_t>(stage) * W_LINE : 0), is_there);
    }
  }
  #pragma unroll
  for (int i = 0; i < SCALE_COPIES; i++) {
    const int index = threadIdx.x + i * BLOCK;
    if (SCALE_COPIES * BLOCK == 2 * ROWS * OF_ROW || index < 2 * ROWS * OF_ROW) {
      const int left = scales_left[i] - stage * GROUPS;
      const Shared place = to + SCALES_AT + index * OF_COPY;
      const char* const from = scales_from[i] + (left > 0 ? stage * GROUPS * 2 : 0);
      if constexpr (WHOLE) {
        copy_to<OF_COPY>(place, from, left > 0);
      } else {
        copy_two_to(place, from, left);
      }
    }
  }
};
auto copy_x = [&](int stage, Shared to) {
  const T* const from = x_from + (stage < x_stages ? stage * STAGE : 0);
  #pragma unroll
  for (int i = 0; i < X_COPIES; i++) {
    if (X_COPIES * X_APART == MOST || x_row + i * X_APART < MOST) {
      const bool is_row_of_x = x_row + i * X_APART < rows_of_x;
      copy_to<16>(to + x_to + i * X_APART * X_LINE, from + (is_row_of_x ? static_cast<int64_t>(i) * X_APART * columns : 0), is_row_of_x && stage < x_stages);
    }
  }
};

float sums[OWN_TILES][TILES][4] = {};
#pragma unroll
for (int i = 0; i < SLOTS - 1; i++) {
  if (i < count) {
    copy_w(begin + i, memory + i * SLOT);
  }
}
// So far only what nothing changes was read.
wait_for_last();
#pragma unroll
for (int i = 0; i < SLOTS - 1; i++) {
  if (i < count) {
    copy_x(begin + i, memory + i * SLOT);
  }
  end_copies();
}

// Codes become numbers by their bits alone. The compiler would write a mask that it knows anew for each use.
constexpr unsigned RAISED = IS_HALF<T> ? 0x64006400 : 0x43004300;
const unsigned mask = (BITS == 4 ? 0x000f000f : 0x00ff00ff) + (gridDim.z - 1);
// Two codes of a word as numbers: of four bits those that are four apart, of eight bits those that are two apart.
auto codes_of = [&](unsigned word, int which) {
  if constexpr (BITS == 4 || IS_HALF<T>) {
    const unsigned both = word >> which * BITS & mask | RAISED;
    const unsigned raised = RAISED;
    return __hsub2(reinterpret_cast<const Pair<T>&>(both), reinterpret_cast<const Pair<T>&>(raised));
  } else {
    const unsigned both = two_codes(&word, which, which + 2);
    return reinterpret_cast<const Pair<T>&>(both);
  }
};
// Where in its first word the first scale of a row lies, of each of its rows.
unsigned odd_scales = 0, odd_biases = 0;
if constexpr (PACKED) {
  #pragma unroll
  for (int i = 0; i < 2 * OWN_TILES; i++) {
    const int64_t of_row = static_cast<int64_t>(row_of(quad + i * 8)) * groups;
    odd_scales |= static_cast<unsigned>(is_odd(scales + of_row)) << i;
    odd_biases |= static_cast<unsigned>(is_odd(biases + of_row)) << i;
  }
}
Shared at = memory;
Shared to = end_of_ring - SLOT;
for (int stage = begin; stage < begin + count; stage++) {
  wait_for_copies<SLOTS - 2>();
  __syncthreads();
  if (stage + SLOTS - 1 < begin + count) {
    copy_w(stage + SLOTS - 1, to);
    copy_x(stage + SLOTS - 1, to);
  }
  end_copies();
  to = to + SLOT == end_of_ring ? memory : to + SLOT;
  // Columns of x stand as those of unpacked weights.
  unsigned xs[EIGHTS][TILES][4];
  #pragma unroll
  for (int e = 0; e < EIGHTS; e++) {
    #pragma unroll
    for (int t = 0; t < TILES; t++) {
      const uint4 eight = four_at(at + X_AT + t * 8 * X_LINE + x_place(quad, warp * (SLAB / 8) + part * EIGHTS + e));
      unsigned* const own = xs[e][t];
      place_as_unpacked<BITS>(eight, own);
    }
  }
  #pragma unroll
  for (int m = 0; m < OWN_TILES; m++) {
    unsigned words[2][OF_LANE / 4];
    Pair<T> scale[2], bias[2];
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      constexpr int STRIDE = 8 * W_LINE;
      const int in_line = (warp * 4 + part) * OF_LANE;
      words_at<OF_LANE>(at + w_place(quad, in_line / 16) + in_line % 16 + (m * 2 + i) * STRIDE, words[i]);
      if constexpr (PACKED) {
        const int group = (warp * SLAB + part * (SLAB / 4)) / GROUP_SIZE;
        auto value_at = [&](int row, unsigned odd) {
          const int place = static_cast<int>(odd >> (m * 2 + i) & 1) + group;
          return twice_at<T>(at + SCALES_AT + row * OF_ROW * OF_COPY + place * 2);
        };
        scale[i] = value_at(quad + (m * 2 + i) * 8, odd_scales);
        bias[i] = value_at(ROWS + quad + (m * 2 + i) * 8, odd_biases);
      }
    }
    #pragma unroll
    for (int e = 0; e < EIGHTS; e++) {
      unsigned weights[2][4];
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        #pragma unroll
        for (int j = 0; j < 4; j++) {
          if constexpr (PACKED) {
            const unsigned word = BITS == 4 ? words[i][e] : words[i][e * 2 + j / 2];
            const Pair<T> values = __hfma2(codes_of(word, BITS == 4 ? j : j % 2), scale[i], bias[i]);
            weights[i][j] = reinterpret_cast<const unsigned&>(values);
          } else {
            weights[i][j] = words[i][j];
          }
        }
      }
      #pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const unsigned a[4] = {weights[0][j], weights[1][j], weights[0][j + 1], weights[1][j + 1]};
        #pragma unroll
        for (int t = 0; t < TILES; t++) {
          accumulate<T>(sums[m][t], a, xs[e][t][j], xs[e][t][j + 1]);
        }
      }
    }
  }
  at = at + SLOT == end_of_ring ? memory : at + SLOT;
}

// The sums of all columns come together.
wait_for_copies<0>();
__syncthreads();
auto found_at = [&](int of_warp, int row, int column) { return memory + ((of_warp * MOST + row) * FOUND_ROW + column) * 4; };
#pragma unroll
for (int m = 0; m < OWN_TILES; m++) {
  #pragma unroll
  for (int t = 0; t < TILES; t++) {
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      put_at(found_at(warp, t * 8 + part * 2 + j % 2, quad + m * 16 + j / 2 * 8), sums[m][t][j]);
    }
  }
}
__syncthreads();
auto found = [&](int row, int column, float* four) {
  #pragma unroll
  for (int i = 0; i < STAGE_WARPS; i++) {
    const uint4 more = four_at(found_at(i, row, column));
    const unsigned bits[4] = {more.x, more.y, more.z, more.w};
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      four[j] += __uint_as_float(bits[j]);
    }
  }
};
const int64_t first_out = static_cast<int64_t>(blockIdx.y) * rows_of_x * rows_of_half;
for (int index = threadIdx.x; index < min(rows_of_x, MOST) * (TOGETHER / 4); index += BLOCK) {
  const int row = index / (TOGETHER / 4);
  const int column = index % (TOGETHER / 4) * 4;
  float four[4] = {};
  found(row, column, four);
  O results[4] = {static_cast<O>(four[0]), static_cast<O>(four[1]), static_cast<O>(four[2]), static_cast<O>(four[3])};
  if constexpr (GATE != 0) {
    float ups[4] = {};
    found(row, column + TOGETHER, ups);
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      results[i] = gated<GATE>(results[i], static_cast<O>(ups[i]));
    }
  }
  O* const place = out + first_out + static_cast<int64_t>(row) * rows_of_half + row_of(column);
  if (rows_of_half % 4 == 0 && is_row(column)) {
    using Four = typename Either<sizeof(O) == 4, float4, uint2>::Type;
    *reinterpret_cast<Four*>(place) = *reinterpret_cast<const Four*>(results);
  } else {
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      if (is_row(column + i)) {
        place[i] = results[i];
      }
    }
  }
}
