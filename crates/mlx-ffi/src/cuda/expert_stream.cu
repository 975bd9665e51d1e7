// Products of rows that chose the same expert with its matrix, where such rows are few. A block takes one item after the other: a tile of up to
// MOST rows of x, and ROWS_OF_BLOCK rows of the matrix. It copies what it multiplies next into a ring in shared memory, some stages ahead and
// across items. Its warps share the columns of a stage.
//
// Tensor cores multiply 16 rows of the matrix with 8 of x; what a row of x gives does not depend on the others. Codes are multiplied as whole
// numbers or floats, and sums of a group are scaled. With a GATE and two matrices, half of a block's rows are the gate's.
// TILES: of eight rows of x. OWN_TILES: of 16 rows of the matrix. STAGE: columns. SLOTS: stages of the ring. MEMORY: bytes of the launch's shared
// memory. KNOWS_TILES: the kernel before this one has waited for what made the tiles.

constexpr bool PACKED = KIND != DENSE;
constexpr int EACH = GATE != 0 && LAYOUT != SAME ? 2 : 1;
constexpr int ROWS_OF_BLOCK = 16 * OWN_TILES;
constexpr int TOGETHER = ROWS_OF_BLOCK / EACH;
constexpr int ROW_BLOCKS = ROWS / TOGETHER;
static_assert(ROW_BLOCKS * TOGETHER == ROWS && COLUMNS % 32 == 0, "whole blocks");
constexpr int STREAM_WARPS = 4;
constexpr int BLOCK = STREAM_WARPS * 32;
constexpr int MOST = TILES * 8;
constexpr int STAGES = (COLUMNS + STAGE - 1) / STAGE;
// Columns of a warp in a stage.
constexpr int SLAB = STAGE / STREAM_WARPS;
// Bytes of a row of the matrix and of one of x, in pieces of sixteen.
constexpr int ROW_BYTES = COLUMNS / 8 * BITS;
constexpr int W_LINE = STAGE / 8 * BITS;
constexpr int X_LINE = STAGE * sizeof(T);
constexpr int W_PIECES = W_LINE / 16;
constexpr int X_PIECES = X_LINE / 16;
// Columns whose sums are scaled at once. Of each row of them, a lane has OF_LANE bytes. It takes eight columns at a time.
constexpr int SCALED = !PACKED || GROUP_SIZE > SLAB ? SLAB : GROUP_SIZE;
constexpr int CHUNKS = SCALED / 32;
constexpr int OF_LANE = SCALED / 4 * BITS / 8;
constexpr int WORDS = OF_LANE / 4;
constexpr int OF_EIGHT = BITS / 4;
static_assert((CHUNKS == 1 || CHUNKS == 2) && SLAB % SCALED == 0 && OF_LANE <= 16, "loads of a lane");
// Tiles of the matrix whose products are begun before the first ones are awaited: as many as leave registers.
constexpr int AT_A_TIME = TILES > 2 ? 1 : 4;
// Scales of a row in a stage, in bytes and in copies of OF_COPY. Where rows do not all begin at such a multiple, words are copied, one more than there are.
constexpr int GROUPS = PACKED ? COLUMNS / GROUP_SIZE : 1;
constexpr int OF_SCALE = KIND == FLOATS ? 1 : 2;
constexpr int SCALE_BYTES = PACKED ? STAGE / GROUP_SIZE * OF_SCALE : 4;
constexpr bool WHOLE = GROUPS * OF_SCALE % SCALE_BYTES == 0;
static_assert(SCALE_BYTES % 4 == 0 && SCALE_BYTES <= 16, "scales of a stage");
constexpr int OF_COPY = WHOLE ? SCALE_BYTES : 4;
constexpr int OF_ROW = WHOLE ? 1 : SCALE_BYTES / 4 + 1;
constexpr int SCALE_LINE = OF_ROW * OF_COPY;
// Scales, and minima.
constexpr int KINDS = !PACKED ? 0 : KIND == AFFINE ? 2 : 1;
constexpr int X_AT = ROWS_OF_BLOCK * W_LINE;
constexpr int SCALES_AT = X_AT + MOST * X_LINE;
constexpr int SLOT = SCALES_AT + KINDS * ROWS_OF_BLOCK * SCALE_LINE;
static_assert(SLOT % 16 == 0, "stages begin at pieces");
constexpr int FOUND_ROW = ROWS_OF_BLOCK + 4;
// Items that copies may be ahead.
constexpr int ITEMS = (SLOTS - 1 + STAGES - 1) / STAGES + 2;
// Sums of all warps, which lie in a stage where they fit, and otherwise behind the ring.
constexpr int FOUND_BYTES = STREAM_WARPS * MOST * FOUND_ROW * 4;
constexpr bool SHARES = FOUND_BYTES <= SLOT;
static_assert(SLOTS >= 2 && MEMORY >= SLOTS * SLOT + (SHARES ? 0 : FOUND_BYTES), "room for what comes, and for sums");

const int warp = threadIdx.x / 32;
const int quad = threadIdx.x % 32 / 4;
const int part = threadIdx.x % 4;
const Shared memory = memory_of_launch();
const Shared end_of_ring = memory + SLOTS * SLOT;
__shared__ int4 items[ITEMS];

// Where a piece of a row lies, so that a warp reads from all banks at once: lanes of a row read TOUCHED pieces of weights side by side.
constexpr int TOUCHED = OF_LANE / 4;
auto w_place = [](int row, int piece) { return row * W_LINE + (piece ^ row % (8 / TOUCHED) * TOUCHED) * 16; };
auto x_place = [](int row, int piece) { return row * X_LINE + (piece ^ row % 2 * (CHUNKS == 1 ? 4 : 1)) * 16; };

// A thread copies pieces of several rows, which are by as many further as all threads copy at once.
constexpr int W_APART = BLOCK / W_PIECES;
constexpr int X_APART = BLOCK / X_PIECES;
constexpr int W_COPIES = ROWS_OF_BLOCK / W_APART;
constexpr int W_OF_EACH = W_COPIES / EACH;
constexpr int X_COPIES = MOST / X_APART;
static_assert(W_OF_EACH * EACH * W_APART == ROWS_OF_BLOCK && X_COPIES * X_APART == MOST && W_APART % 8 == 0 && X_APART % 2 == 0, "rows of a thread");
constexpr int ALL_SCALES = KINDS * ROWS_OF_BLOCK * OF_ROW;
constexpr int SCALE_COPIES = (ALL_SCALES + BLOCK - 1) / BLOCK;
const int w_row = threadIdx.x / W_PIECES, w_piece = threadIdx.x % W_PIECES;
const int x_row = threadIdx.x / X_PIECES, x_piece = threadIdx.x % X_PIECES;
const int w_to = w_place(w_row, w_piece);
const int x_to = X_AT + x_place(x_row, x_piece);

auto line_of = [&](const int4& item, int row) { return row_of<LAYOUT, ROWS>(item.x, item.w + row % TOGETHER, row / TOGETHER); };
// From one row of a matrix to the next in a block.
constexpr int64_t LINES_APART = LAYOUT == INTERLEAVED && EACH == 2 ? 2 : 1;
auto matrix_of = [&](int row, auto* first, auto* second) { return LAYOUT == SEPARATE && EACH == 2 && row >= TOGETHER ? second : first; };
// How far a row's scales lie behind a multiple of a word.
auto offset_of = [&](const void* of_row) { return WHOLE ? 0 : static_cast<int>(reinterpret_cast<unsigned long long>(of_row) % 4); };
auto scales_of_line = [&](int kind, int row, int64_t line) {
  const char* const of = static_cast<const char*>(
      kind == 0 ? static_cast<const void*>(matrix_of(row, scales, scales_up)) : static_cast<const void*>(matrix_of(row, minima, minima_up)));
  return of + line * (GROUPS * OF_SCALE);
};

// What is copied next: an item, whose fourth number is its first row of the matrix, and the one after it.
int number = blockIdx.x;
int entered = 0;
int stage_ahead = 0;
int4 ahead, after;
int lines_after[X_COPIES];
const char* w_from[EACH];
const T* x_from[X_COPIES];
const char* scales_from[SCALE_COPIES + 1];
int scales_left[SCALE_COPIES + 1];
auto find = [&](int of) {
  const int tile = of / ROW_BLOCKS;
  int4 found = make_int4(0, 0, 0, 0);
  if (tile < tiles_shape[0]) {
    found = reinterpret_cast<const int4*>(tiles)[tile];
  }
  found.w = of % ROW_BLOCKS * TOGETHER;
  return found;
};
auto find_lines = [&]() {
  #pragma unroll
  for (int i = 0; i < X_COPIES; i++) {
    const int row = x_row + i * X_APART;
    const int place = after.y + row;
    lines_after[i] = place;
    if (GATHERS && row < after.z) {
      lines_after[i] = static_cast<int>(order[place]) / CHOICES;
    }
  }
};
// Copies go on with the item that was found.
auto enter = [&]() {
  ahead = after;
  stage_ahead = 0;
  number += gridDim.x;
  if (ahead.z > 0) {
    if (threadIdx.x == 0) {
      items[entered % ITEMS] = ahead;
    }
    entered++;
    #pragma unroll
    for (int e = 0; e < EACH; e++) {
      const int row = w_row + e * TOGETHER;
      w_from[e] = reinterpret_cast<const char*>(matrix_of(row, w, w_up)) + line_of(ahead, row) * ROW_BYTES + w_piece * 16;
    }
    #pragma unroll
    for (int i = 0; i < X_COPIES; i++) {
      x_from[i] = x + static_cast<int64_t>(lines_after[i]) * COLUMNS + x_piece * 8;
    }
    #pragma unroll
    for (int i = 0; i < SCALE_COPIES; i++) {
      const int index = threadIdx.x + i * BLOCK;
      const int row = index / OF_ROW % ROWS_OF_BLOCK;
      const char* const of_row = scales_of_line(index / (OF_ROW * ROWS_OF_BLOCK), row, line_of(ahead, row));
      const int before = index % OF_ROW * OF_COPY - offset_of(of_row);
      scales_from[i] = of_row + before;
      scales_left[i] = GROUPS * OF_SCALE - before;
    }
  }
};
auto copy_w = [&](Shared to) {
  const bool is_there = STAGES * STAGE == COLUMNS || stage_ahead * W_LINE + w_piece * 16 < ROW_BYTES;
  #pragma unroll
  for (int i = 0; i < W_COPIES; i++) {
    const char* const from = w_from[i / W_OF_EACH] + i % W_OF_EACH * W_APART * LINES_APART * ROW_BYTES;
    copy_to<16>(to + w_to + i * W_APART * W_LINE, from + (is_there ? stage_ahead * W_LINE : 0), is_there);
  }
  #pragma unroll
  for (int i = 0; i < SCALE_COPIES; i++) {
    const int index = threadIdx.x + i * BLOCK;
    if (SCALE_COPIES * BLOCK == ALL_SCALES || index < ALL_SCALES) {
      const int left = scales_left[i] - stage_ahead * SCALE_BYTES;
      const char* const from = scales_from[i] + (left > 0 ? stage_ahead * SCALE_BYTES : 0);
      const Shared place = to + SCALES_AT + index * OF_COPY;
      if constexpr (WHOLE) {
        copy_to<OF_COPY>(place, from, left > 0);
      } else {
        copy_word_to(place, from, left);
      }
    }
  }
};
auto copy_x = [&](Shared to) {
  const bool is_there = STAGES * STAGE == COLUMNS || stage_ahead * STAGE + x_piece * 8 < COLUMNS;
  #pragma unroll
  for (int i = 0; i < X_COPIES; i++) {
    if (x_row + i * X_APART < ahead.z) {
      copy_to<16>(to + x_to + i * X_APART * X_LINE, x_from[i] + (is_there ? stage_ahead * STAGE : 0), is_there);
    }
  }
};
// Goes on to the next stage. What comes after an item is asked for when the item begins, and is there when it ends.
auto go_on = [&]() {
  if (stage_ahead == 0) {
    after = find(number);
  }
  if (stage_ahead == (STAGES > 1 ? 1 : 0)) {
    find_lines();
  }
  if (++stage_ahead == STAGES) {
    enter();
  }
};

if constexpr (!KNOWS_TILES) {
  wait_for_last();
}
let_next_begin();
after = find(number);
find_lines();
enter();
if constexpr (KNOWS_TILES) {
  // What nothing changes is read before the kernel before this one has ended.
  #pragma unroll
  for (int i = 0; i < SLOTS - 1 && i < STAGES; i++) {
    if (ahead.z > 0) {
      stage_ahead = i;
      copy_w(memory + i * SLOT);
    }
  }
  stage_ahead = 0;
  wait_for_last();
}
#pragma unroll 1
for (int i = 0; i < SLOTS - 1; i++) {
  if (ahead.z > 0) {
    if (!KNOWS_TILES || i >= STAGES) {
      copy_w(memory + i * SLOT);
    }
    copy_x(memory + i * SLOT);
    go_on();
  }
  end_copies();
}

// Codes become numbers without an operation: in bf16, whole numbers below 256 are their own bits, divided by 2¹³³, and so are floats of four bits by 2¹²⁶. So
// that products with x are no smaller than f32 knows, x is raised before, and sums are brought back at their end. Codes that lie four bits further are
// sixteen times as large. In f16, whole numbers are their bits divided by 2²⁴, and floats of four bits by 2¹⁴.
constexpr bool RAISES = PACKED && !IS_HALF<T>;
constexpr unsigned RAISED = 0x5f805f80;
constexpr unsigned RAISED_LESS = KIND == AFFINE && BITS == 4 ? 0x5d805d80 : RAISED;
// 1, 2⁶⁹, 2⁶², 2²⁴ and 2¹⁴.
constexpr float BROUGHT_BACK = !PACKED ? 1.0f : RAISES ? (KIND == AFFINE ? 5.9029581e20f : 4.6116860e18f) : KIND == AFFINE ? 16777216.0f : RAISED_FLOATS;
auto raise = [](unsigned word, unsigned by) {
  if constexpr (RAISES) {
    const Pair<T> found = __hmul2(reinterpret_cast<const Pair<T>&>(word), reinterpret_cast<const Pair<T>&>(by));
    return reinterpret_cast<const unsigned&>(found);
  }
  return word;
};
// Two codes of a word: of four bits those that are four apart, of eight bits those that are two apart.
auto codes_of = [](unsigned word, int which) -> unsigned {
  if constexpr (KIND == FLOATS) {
    const unsigned signs = word << 12 - 4 * which & 0x80008000;
    constexpr int TO = IS_HALF<T> ? 9 : 6;
    const int by = TO - 4 * which;
    return signs | (by > 0 ? word << by : word >> -by) & 7u * 0x00010001u << TO;
  } else if constexpr (BITS == 8) {
    return word >> 8 * which & 0x00ff00ff;
  } else if constexpr (RAISES) {
    return word >> which / 2 * 8 & (which % 2 == 0 ? 0x000f000f : 0x00f000f0);
  } else {
    return word >> 4 * which & 0x000f000f;
  }
};
// Codes that are all one add up columns of x.
constexpr unsigned WORD_OF_ONES = BITS == 4 ? 0x11111111 : 0x01010101;
const unsigned ones[2] = {codes_of(WORD_OF_ONES, 0), codes_of(WORD_OF_ONES, 1)};
const unsigned all_ones[4] = {ones[0], ones[0], ones[1], ones[1]};

Shared at = memory;
Shared to = end_of_ring - SLOT;
Shared last = memory;
auto found_at = [&](int of_warp, int row, int column) { return (SHARES ? last : end_of_ring) + ((of_warp * MOST + row) * FOUND_ROW + column) * 4; };
for (int own_item = 0; own_item < entered; own_item++) {
  float sums[OWN_TILES][TILES][4] = {};
  int4 item = make_int4(0, 0, 0, 0);
  unsigned offsets[KINDS + 1] = {};
  #pragma unroll 1
  for (int stage = 0; stage < STAGES; stage++) {
    wait_for_copies<SLOTS - 2>();
    __syncthreads();
    if (stage == 0) {
      item = items[own_item % ITEMS];
      if constexpr (PACKED && !WHOLE) {
        #pragma unroll
        for (int kind = 0; kind < KINDS; kind++) {
          offsets[kind] = 0;
          #pragma unroll
          for (int i = 0; i < 2 * OWN_TILES; i++) {
            const int row = quad + i * 8;
            offsets[kind] |= offset_of(scales_of_line(kind, row, line_of(item, row))) << 2 * i;
          }
        }
      }
    }
    if (ahead.z > 0) {
      copy_w(to);
      copy_x(to);
      go_on();
    }
    end_copies();
    to = to + SLOT == end_of_ring ? memory : to + SLOT;
    #pragma unroll
    for (int g = 0; g < SLAB / SCALED; g++) {
      // Columns of x stand as those of unpacked weights.
      constexpr int PIECES = SCALED / 8;
      const int first_piece = (warp * (SLAB / SCALED) + g) * PIECES;
      unsigned xs[CHUNKS][TILES][4];
      float of_x[TILES][4] = {};
      #pragma unroll
      for (int t = 0; t < TILES; t++) {
        if (t == 0 || t * 8 < item.z) {
          #pragma unroll
          for (int c = 0; c < CHUNKS; c++) {
            const uint4 eight = four_at(at + X_AT + t * 8 * X_LINE + x_place(quad, first_piece + part * CHUNKS + c));
            unsigned* const own = xs[c][t];
            place_as_unpacked<BITS>(eight, own);
            #pragma unroll
            for (int j = 0; j < 4; j++) {
              own[j] = raise(own[j], j % 2 == 0 ? RAISED : RAISED_LESS);
            }
            if constexpr (KIND == AFFINE) {
              accumulate<T>(of_x[t], all_ones, own[0], own[1]);
              accumulate<T>(of_x[t], all_ones, own[2], own[3]);
            }
          }
        }
      }
      #pragma unroll
      for (int first = 0; first < OWN_TILES; first += AT_A_TIME) {
        const int in_line = first_piece * BITS + part * OF_LANE;
        const Shared lane_at = at + w_place(quad, in_line / 16) + in_line % 16;
        unsigned words[AT_A_TIME][2][WORDS];
        #pragma unroll
        for (int m = 0; m < AT_A_TIME; m++) {
          #pragma unroll
          for (int i = 0; i < 2; i++) {
            words_at<OF_LANE>(lane_at + ((first + m) * 2 + i) * (8 * W_LINE), words[m][i]);
          }
        }
        float scale[AT_A_TIME][2], minimum[AT_A_TIME][2];
        if constexpr (PACKED) {
          #pragma unroll
          for (int m = 0; m < AT_A_TIME; m++) {
            #pragma unroll
            for (int i = 0; i < 2; i++) {
              const int of_quad = (first + m) * 2 + i;
              const int group = first_piece * 8 / GROUP_SIZE * OF_SCALE;
              auto place = [&](int kind) {
                return at + SCALES_AT + (kind * ROWS_OF_BLOCK + quad + of_quad * 8) * SCALE_LINE + (offsets[kind] >> 2 * of_quad & 3) + group;
              };
              if constexpr (KIND == AFFINE) {
                scale[m][i] = half_at<T>(place(0));
                minimum[m][i] = half_at<T>(place(1));
              } else {
                // The smallest one, 2⁻¹²⁷, is zero.
                scale[m][i] = __uint_as_float(static_cast<unsigned>(byte_at(place(0))) << 23);
              }
            }
          }
        }
        float found[AT_A_TIME][TILES][4] = {};
        #pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
          #pragma unroll
          for (int j = 0; j < 4; j += 2) {
            #pragma unroll
            for (int m = 0; m < AT_A_TIME; m++) {
              auto pair = [&](int i, int j) {
                const unsigned word = words[m][i][c * OF_EIGHT + j * OF_EIGHT / 4];
                return PACKED ? codes_of(word, BITS == 4 ? j : j % 2) : word;
              };
              const unsigned a[4] = {pair(0, j), pair(1, j), pair(0, j + 1), pair(1, j + 1)};
              #pragma unroll
              for (int t = 0; t < TILES; t++) {
                if (t == 0 || t * 8 < item.z) {
                  accumulate<T>(PACKED ? found[m][t] : sums[first + m][t], a, xs[c][t][j], xs[c][t][j + 1]);
                }
              }
            }
          }
        }
        if constexpr (PACKED) {
          #pragma unroll
          for (int m = 0; m < AT_A_TIME; m++) {
            #pragma unroll
            for (int t = 0; t < TILES; t++) {
              #pragma unroll
              for (int j = 0; j < 4; j++) {
                float& sum = sums[first + m][t][j];
                sum += scale[m][j / 2] * found[m][t][j];
                if constexpr (KIND == AFFINE) {
                  sum += minimum[m][j / 2] * of_x[t][j];
                }
              }
            }
          }
        }
      }
    }
    last = at;
    at = at + SLOT == end_of_ring ? memory : at + SLOT;
  }

  // The sums of all columns come together, maybe in the last stage, once all warps have read it. Nothing is copied there before all of them are in the
  // next one.
  if constexpr (SHARES) {
    __syncthreads();
  }
  #pragma unroll
  for (int m = 0; m < OWN_TILES; m++) {
    #pragma unroll
    for (int t = 0; t < TILES; t++) {
      if (t == 0 || t * 8 < item.z) {
        #pragma unroll
        for (int j = 0; j < 4; j++) {
          put_at(found_at(warp, t * 8 + part * 2 + j % 2, quad + m * 16 + j / 2 * 8), sums[m][t][j] * BROUGHT_BACK);
        }
      }
    }
  }
  __syncthreads();
  for (int index = threadIdx.x; index < item.z * (TOGETHER / 4); index += BLOCK) {
    const int row = index / (TOGETHER / 4);
    const int column = index % (TOGETHER / 4) * 4;
    float all[EACH][4] = {};
    #pragma unroll
    for (int e = 0; e < EACH; e++) {
      #pragma unroll
      for (int i = 0; i < STREAM_WARPS; i++) {
        const uint4 more = four_at(found_at(i, row, column + e * TOGETHER));
        const unsigned bits[4] = {more.x, more.y, more.z, more.w};
        #pragma unroll
        for (int j = 0; j < 4; j++) {
          all[e][j] += __uint_as_float(bits[j]);
        }
      }
      if constexpr (HAS_BIAS) {
        #pragma unroll
        for (int j = 0; j < 4; j++) {
          const int of_block = column + e * TOGETHER + j;
          all[e][j] += static_cast<float>(matrix_of(of_block, bias, bias_up)[line_of(item, of_block)]);
        }
      }
    }
    alignas(8) T results[4];
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      if constexpr (GATE != 0) {
        results[j] = passed<GATE, T>(all[0][j], all[EACH - 1][j], limits);
      } else {
        results[j] = static_cast<T>(all[0][j]);
      }
    }
    const int place = item.y + row;
    const int64_t line = GATHERS ? place : static_cast<int>(order[place]);
    *reinterpret_cast<uint2*>(out + line * ROWS + item.w + column) = *reinterpret_cast<const uint2*>(results);
  }
}
