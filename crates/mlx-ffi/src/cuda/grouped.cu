// Products of rows that chose the same expert with its matrix. A block has a tile of up to TILE_ROWS such rows and
// 128 rows of the matrix, of which half are the gate's where it has rows of its own; tensor cores multiply 32 columns
// at a time while the next are on their way. Packed weights are unpacked on their way into shared memory.

constexpr int STAGES = 3;
constexpr int BLOCK = 32;
constexpr int MATRIX_ROWS = 128;
constexpr bool PACKED = KIND != DENSE;
constexpr int EACH = GATE != 0 && LAYOUT != SAME ? 2 : 1;
constexpr int OWN_ROWS = MATRIX_ROWS / EACH;
constexpr int WARPS_DOWN = TILE_ROWS >= 64 ? 2 : 1;
constexpr int DOWN = TILE_ROWS / WARPS_DOWN / 16;
constexpr int ACROSS = MATRIX_ROWS / (WARPS / WARPS_DOWN) / 8;
constexpr int STEPS = COLUMNS / BLOCK;
constexpr int GROUPS = PACKED ? COLUMNS / GROUP_SIZE : 1;
constexpr int X_COPIES = (TILE_ROWS * 4 + THREADS - 1) / THREADS;

let_next_begin();
wait_for_last();
const int4 tile = reinterpret_cast<const int4*>(tiles)[blockIdx.y];
const int expert = tile.x;
const int first = tile.y;
const int count = tile.z;
const int first_row = blockIdx.x * OWN_ROWS;
if (count > 0) {
__shared__ alignas(128) T x_tiles[STAGES][TILE_ROWS * BLOCK];
__shared__ alignas(128) T w_tiles[STAGES][MATRIX_ROWS * BLOCK];
const int thread = threadIdx.x;
const int warp = thread / 32;
const int lane = thread % 32;
const char* const codes_of[2] = {reinterpret_cast<const char*>(w), reinterpret_cast<const char*>(w_up)};
const void* const scales_of[2] = {scales, scales_up};
const T* const minima_of[2] = {reinterpret_cast<const T*>(minima), reinterpret_cast<const T*>(minima_up)};
const T* const biases_of[2] = {bias, bias_up};

// Sixteen bytes of a row of a tile, where eight rows of one column lie in different banks.
auto place_of = [](int row, int eight) { return row * BLOCK + (eight ^ (row >> 1 & 3)) * 8; };
// Rows of the matrix come in eights of the gate and of what it lets through, in turn.
auto matrix_of = [&](int row) { return EACH == 2 ? row / 8 % 2 : 0; };
auto line_of = [&](int row) {
  const int own = EACH == 2 ? row / 16 * 8 + row % 8 : row;
  return row_of<LAYOUT, ROWS>(expert, min(first_row + own, ROWS - 1), matrix_of(row));
};

const T* x_from[X_COPIES];
bool x_is_there[X_COPIES];
#pragma unroll
for (int i = 0; i < X_COPIES; i++) {
  const int row = (thread + i * THREADS) / 4;
  x_is_there[i] = row < count;
  const int place = first + (row < count ? row : 0);
  const int64_t line = GATHERS ? static_cast<int>(order[place]) / CHOICES : place;
  x_from[i] = x + line * COLUMNS + thread % 4 * 8;
}
auto copy_x = [&](int step) {
  #pragma unroll
  for (int i = 0; i < X_COPIES; i++) {
    const int row = (thread + i * THREADS) / 4;
    if (row < TILE_ROWS) {
      copy_ahead(x_tiles[step % STAGES] + place_of(row, thread % 4), x_from[i] + step * BLOCK, x_is_there[i]);
    }
  }
};

const T* w_from[2];
#pragma unroll
for (int i = 0; i < 2; i++) {
  const int row = thread / 4 + i * 64;
  const int from = LAYOUT == SEPARATE ? matrix_of(row) : 0;
  w_from[i] = reinterpret_cast<const T*>(codes_of[from]) + line_of(row) * COLUMNS + thread % 4 * 8;
}
auto copy_w = [&](int step) {
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    copy_ahead(w_tiles[step % STAGES] + place_of(thread / 4 + i * 64, thread % 4), w_from[i] + step * BLOCK, true);
  }
};

// Of packed weights a thread has 16 columns of a row.
const int packed_row = thread / 2;
const int packed_from = LAYOUT == SEPARATE ? matrix_of(packed_row) : 0;
const int64_t packed_line = line_of(packed_row);
constexpr int WORDS = PACKED ? BITS / 2 : 1;
unsigned codes[WORDS];
float scale = 0;
float minimum = 0;
auto load_w = [&](int step) {
  const int k = step * BLOCK + thread % 2 * 16;
  const char* at = codes_of[packed_from] + (packed_line * COLUMNS + k) / 8 * BITS;
  load_16<BITS>(at, codes);
  const int64_t group = packed_line * GROUPS + k / (PACKED ? GROUP_SIZE : 1);
  scale = scale_at<T, KIND, GROUP_SIZE>(scales_of[packed_from], group);
  if constexpr (KIND == AFFINE) {
    minimum = static_cast<float>(minima_of[packed_from][group]);
  }
};
auto unpack_w = [&](int step) {
  alignas(16) T made[16];
  unpack_16<T, KIND, BITS>(codes, scale, minimum, made);
  T* const to = w_tiles[step % STAGES];
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    *reinterpret_cast<uint4*>(to + place_of(packed_row, thread % 2 * 2 + i)) =
        *reinterpret_cast<const uint4*>(made + 8 * i);
  }
};

float sums[DOWN][ACROSS][4];
#pragma unroll
for (int m = 0; m < DOWN; m++) {
  #pragma unroll
  for (int n = 0; n < ACROSS; n++) {
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      sums[m][n][i] = 0;
    }
  }
}
const int down = warp % WARPS_DOWN * (DOWN * 16);
const int across = warp / WARPS_DOWN * (ACROSS * 8);

#pragma unroll
for (int step = 0; step < STAGES - 1; step++) {
  if (step < STEPS) {
    copy_x(step);
    if constexpr (!PACKED) {
      copy_w(step);
    }
  }
  end_copies();
}
if constexpr (PACKED) {
  load_w(0);
  unpack_w(0);
  if (STEPS > 1) {
    load_w(1);
  }
}
#pragma unroll 1
for (int step = 0; step < STEPS; step++) {
  wait_for_copies();
  __syncthreads();
  if (step + STAGES - 1 < STEPS) {
    copy_x(step + STAGES - 1);
    if constexpr (!PACKED) {
      copy_w(step + STAGES - 1);
    }
  }
  end_copies();
  if constexpr (PACKED) {
    if (step + 1 < STEPS) {
      unpack_w(step + 1);
    }
    if (step + 2 < STEPS) {
      load_w(step + 2);
    }
  }
  const T* const x_tile = x_tiles[step % STAGES];
  const T* const w_tile = w_tiles[step % STAGES];
  #pragma unroll
  for (int half = 0; half < 2; half++) {
    unsigned a[DOWN][4];
    unsigned b[ACROSS / 2][4];
    #pragma unroll
    for (int m = 0; m < DOWN; m++) {
      load_matrices(a[m], x_tile + place_of(down + m * 16 + lane % 16, half * 2 + lane / 16));
    }
    #pragma unroll
    for (int n = 0; n < ACROSS; n += 2) {
      load_matrices(
          b[n / 2], w_tile + place_of(across + n * 8 + lane / 16 * 8 + lane % 8, half * 2 + lane / 8 % 2));
    }
    #pragma unroll
    for (int m = 0; m < DOWN; m++) {
      #pragma unroll
      for (int n = 0; n < ACROSS; n++) {
        accumulate<T>(sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
      }
    }
  }
}

#pragma unroll
for (int m = 0; m < DOWN; m++) {
  #pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const int row = down + m * 16 + lane / 4 + i / 2 * 8;
    if (row < count) {
      const int64_t line = GATHERS ? first + row : static_cast<int>(order[first + row]);
      #pragma unroll
      for (int n = 0; n < ACROSS; n += EACH) {
        const int own = first_row + (across + n * 8) / EACH + lane % 4 * 2;
        #pragma unroll
        for (int j = 0; j < 2; j++) {
          if (own + j < ROWS) {
            float found[EACH];
            #pragma unroll
            for (int e = 0; e < EACH; e++) {
              found[e] = sums[m][n + e][i + j];
            }
            if (HAS_BIAS) {
              #pragma unroll
              for (int e = 0; e < EACH; e++) {
                const T* const from = biases_of[LAYOUT == SEPARATE ? e : 0];
                found[e] += static_cast<float>(from[row_of<LAYOUT, ROWS>(expert, own + j, e)]);
              }
            }
            T y;
            if constexpr (GATE != 0) {
              y = passed<GATE, T>(found[0], found[EACH - 1], limits);
            } else {
              y = static_cast<T>(found[0]);
            }
            out[line * ROWS + own + j] = y;
          }
        }
      }
    }
  }
}
}
