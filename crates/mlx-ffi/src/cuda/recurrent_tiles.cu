// Tiles of positions in shared memory for layers with a recurrent state, and floats as operands of the tensor cores.

// Eight values of a row of a tile with UNITS times as many. Where they lie depends on the row, so that eight rows' lie in different banks.
template <int UNITS, typename T>
__device__ __forceinline__ T* unit_at(T* tile, int row, int unit) {
  return tile + (row * UNITS + (unit ^ (row & 7))) * 8;
}
// Two floats as the sum of two pairs of T.
template <typename T>
__device__ __forceinline__ void split(float first, float second, unsigned& high, unsigned& low) {
  high = two_of<T>(first, second);
  low = two_of<T>(first - value_of<T>(high, FIRST_VALUE), second - value_of<T>(high, SECOND_VALUE));
}
// A matrix of 16 × 16, as an operand of the tensor cores, of floats as results of these.
template <typename T>
struct Floats {
  unsigned high[4];
  unsigned low[4];
  __device__ __forceinline__ Floats(const float* left, const float* right) {
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      split<T>(left[2 * i], left[2 * i + 1], high[i], low[i]);
      split<T>(right[2 * i], right[2 * i + 1], high[2 + i], low[2 + i]);
    }
  }
  // sums += this b, for b as it is.
  __device__ __forceinline__ void times(float* sums, unsigned b0, unsigned b1) const {
    accumulate<T>(sums, high, b0, b1);
    accumulate<T>(sums, low, b0, b1);
  }
  // sums += this b, for b of two halves too.
  __device__ __forceinline__ void times(float* sums, const unsigned* b_high, const unsigned* b_low) const {
    times(sums, b_high[0], b_high[1]);
    accumulate<T>(sums, high, b_low[0], b_low[1]);
  }
};
// The products of 16 rows of a tile with 16 rows of another, of UNITS · 8 columns: 16 × 8, and 16 × 8 beside it.
template <int UNITS, typename T>
__device__ __forceinline__ void products_of_rows(float (*sums)[4], T* a, T* b, int row, int lane) {
  const int matrix = lane / 8;
  #pragma unroll
  for (int k = 0; k < UNITS / 2; k++) {
    unsigned of_a[4];
    unsigned of_b[4];
    load_matrices(of_a, unit_at<UNITS>(a, row + matrix % 2 * 8 + lane % 8, 2 * k + matrix / 2));
    load_matrices(of_b, unit_at<UNITS>(b, row + matrix / 2 * 8 + lane % 8, 2 * k + matrix % 2));
    accumulate<T>(sums[0], of_a, of_b[0], of_b[1]);
    accumulate<T>(sums[1], of_a, of_b[2], of_b[3]);
  }
}
// Rows of tiles that all threads copy, where there are so many. The others become zeros.
template <int UNITS, int ROWS, typename T>
__device__ __forceinline__ void copy_rows(T* tile, const T* from, int64_t stride, int there) {
  for (int i = threadIdx.x; i < ROWS * UNITS; i += blockDim.x) {
    const int at = i / UNITS;
    const int unit = i % UNITS;
    copy_ahead(unit_at<UNITS>(tile, at, unit), from + at * stride + unit * 8, at < there);
  }
}
// Positions that are computed at once.
constexpr int CHUNK = 16;
// Which row a lane names of four matrices of 8 × 8: the second one beside the first and two below them, or the second one below it.
__device__ __forceinline__ int row_beside(int lane) {
  return lane / 16 * 8 + lane % 8;
}
__device__ __forceinline__ int row_below(int lane) {
  return lane / 8 % 2 * 8 + lane % 8;
}
// Sixteen rows of a head's state, a warp's. A lane has columns from 2 (lane mod 4) on of each eight, of rows lane / 4 and eight further.
template <typename T, int UNITS>
struct StateRows {
  float held[UNITS][4];
  __device__ __forceinline__ void load(const float* from) {
    #pragma unroll
    for (int i = 0; i < UNITS; i++) {
      #pragma unroll
      for (int half = 0; half < 2; half++) {
        const float2 two = *reinterpret_cast<const float2*>(from + half * 8 * UNITS * 8 + i * 8);
        held[i][2 * half] = two.x;
        held[i][2 * half + 1] = two.y;
      }
    }
  }
  __device__ __forceinline__ void store(float* to) const {
    #pragma unroll
    for (int i = 0; i < UNITS; i++) {
      #pragma unroll
      for (int half = 0; half < 2; half++) {
        *reinterpret_cast<float2*>(to + half * 8 * UNITS * 8 + i * 8) = make_float2(held[i][2 * half], held[i][2 * half + 1]);
      }
    }
  }
  // Sixteen columns as an operand.
  __device__ __forceinline__ Floats<T> columns(int k) const {
    return Floats<T>(held[2 * k], held[2 * k + 1]);
  }
  // Decays, and adds to each row what a chunk's positions move it along theirs.
  __device__ __forceinline__ void move(float decay, float (*moves)[4], T* tile, int base, int lane) {
    const Floats<T> kept(moves[0], moves[1]);
    #pragma unroll
    for (int k = 0; k < UNITS / 2; k++) {
      #pragma unroll
      for (int i = 0; i < 8; i++) {
        held[2 * k + i / 4][i % 4] *= decay;
      }
      unsigned b[4];
      load_transposed(b, unit_at<UNITS>(tile, base + row_below(lane), 2 * k + lane / 16));
      kept.times(held[2 * k], b[0], b[1]);
      kept.times(held[2 * k + 1], b[2], b[3]);
    }
  }
};
// The products of a chunk's columns of state with a tile's rows, from `base` on: sums for 8 positions, and for the next ones.
template <int UNITS, typename T>
__device__ __forceinline__ void add_products(float (*sums)[4], const Floats<T>& of_state, T* tile, int base, int k, int lane) {
  unsigned b[4];
  load_matrices(b, unit_at<UNITS>(tile, base + row_beside(lane), 2 * k + lane / 8 % 2));
  of_state.times(sums[0], b[0], b[1]);
  of_state.times(sums[1], b[2], b[3]);
}
// sums += moves by^T, for a matrix `by` of CHUNK × CHUNK as two halves.
template <typename T>
__device__ __forceinline__ void add_by(float (*sums)[4], const Floats<T>& moves, T (*by)[CHUNK * CHUNK], int lane) {
  const int at = row_beside(lane) * CHUNK + lane / 8 % 2 * 8;
  unsigned high[4];
  unsigned low[4];
  load_matrices(high, by[0] + at);
  load_matrices(low, by[1] + at);
  moves.times(sums[0], high, low);
  moves.times(sums[1], high + 2, low + 2);
}
// Writes what a position sees of another one: two values side by side, as two halves.
template <typename T>
__device__ __forceinline__ void put_seen(T (*to)[CHUNK * CHUNK], int at, const float* found) {
  unsigned high;
  unsigned low;
  split<T>(found[0], found[1], high, low);
  *reinterpret_cast<unsigned*>(to[0] + at) = high;
  *reinterpret_cast<unsigned*>(to[1] + at) = low;
}
// Writes results of a chunk's positions, of which so many are there: `to` is the first one's, for the warp's first row.
template <typename T>
__device__ __forceinline__ void put_results(T* to, int64_t stride, float (*sums)[4], int there, int lane) {
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    // Eight positions of eight rows, such that a lane has two rows of a position.
    const unsigned two = transposed(two_of<T>(sums[i / 2][i % 2 * 2], sums[i / 2][i % 2 * 2 + 1]));
    const int t = i / 2 * 8 + lane / 4;
    if (t < there) {
      *reinterpret_cast<unsigned*>(to + t * stride + i % 2 * 8 + lane % 4 * 2) = two;
    }
  }
}
__device__ __forceinline__ float softplus(float x) {
  return x > 20.0f ? x : log1pf(expf(x));
}
// The logarithms of decays, one of each lane, as their sums from the first one of a chunk on. `all` becomes that of the chunk.
__device__ __forceinline__ float sums_of_chunks(float own, float& all, int lane) {
  #pragma unroll
  for (int offset = 1; offset < CHUNK; offset *= 2) {
    const float before = __shfl_sync(0xffffffff, own, max(lane - offset, 0));
    own += lane % CHUNK >= offset ? before : 0.0f;
  }
  all = __shfl_sync(0xffffffff, own, lane | (CHUNK - 1));
  return own;
}
