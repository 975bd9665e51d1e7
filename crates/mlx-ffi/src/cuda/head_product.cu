// The values of one head of some rows times a matrix of the head's own.

// On the tensor cores: a warp has sixteen rows of the matrix, from `first` on, each of which it reads once for up to 8 · TILES
// rows of x. Which columns are which of an operand is chosen so that a lane reads sixteen side by side. `w`, `scales` and
// `minima` are the head's, whose rows are so far apart. `held` has room for x, whose lines begin in different banks; `store` takes
// each value with its row of x and of the matrix. All threads of a block call it at once, and x may be made by the last kernel.
template <typename T, int IN, int TILES, int KIND, int BITS, int GROUP_SIZE, typename W, typename S, typename M, typename Store>
__device__ __forceinline__ void multiply_head(
    const W* w,
    int64_t w_stride,
    const S* scales,
    const M* minima,
    int64_t scale_stride,
    int rows_of_w,
    int first,
    const T* x,
    int64_t x_stride,
    int count,
    T (*held)[IN + 8],
    Store store) {
  static_assert(IN % 64 == 0, "a lane has sixteen of every 64 columns");
  constexpr int STEPS = IN / 64;
  constexpr int DEPTH = STEPS < 4 ? STEPS : 4;
  constexpr int WORDS = KIND == DENSE ? 8 : BITS / 2;
  const int quad = threadIdx.x % 32 / 4;
  const int column = threadIdx.x % 4;
  unsigned codes[DEPTH][2][WORDS];
  float scale[DEPTH][2];
  float minimum[DEPTH][2];
  auto load = [&](int depth, int step) {
    const int k = step * 64 + column * 16;
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      const int64_t row = min(first + quad + 8 * half, rows_of_w - 1);
      const char* const from = reinterpret_cast<const char*>(w + row * w_stride) + k / 8 * BITS;
      if constexpr (KIND == DENSE) {
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          *reinterpret_cast<uint4*>(codes[depth][half] + 4 * i) = reinterpret_cast<const uint4*>(from)[i];
        }
      } else {
        load_16<BITS>(from, codes[depth][half]);
        scale[depth][half] = scale_at<T, KIND, GROUP_SIZE>(scales + row * scale_stride, k / GROUP_SIZE);
        if constexpr (KIND == AFFINE) {
          minimum[depth][half] = static_cast<float>(minima[row * scale_stride + k / GROUP_SIZE]);
        }
      }
    }
  };
  #pragma unroll
  for (int depth = 0; depth < DEPTH; depth++) {
    load(depth, depth);
  }

  // So far only what nothing changes was read.
  wait_for_last();
  for (int i = threadIdx.x; i < 8 * TILES * (IN / 8); i += blockDim.x) {
    const int row = i / (IN / 8);
    const int k = i % (IN / 8) * 8;
    uint4 pack = make_uint4(0, 0, 0, 0);
    if (row < count) {
      pack = *reinterpret_cast<const uint4*>(x + row * x_stride + k);
    }
    *reinterpret_cast<uint4*>(held[row] + k) = pack;
  }
  __syncthreads();

  float sums[TILES][4];
  #pragma unroll
  for (int i = 0; i < TILES * 4; i++) {
    sums[i / 4][i % 4] = 0;
  }
  #pragma unroll
  for (int step = 0; step < STEPS; step++) {
    const int depth = step % DEPTH;
    alignas(16) unsigned own[2][8];
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      if constexpr (KIND == DENSE) {
        #pragma unroll
        for (int i = 0; i < 8; i++) {
          own[half][i] = codes[depth][half][i];
        }
      } else {
        unpack_16<T, KIND, BITS>(
            codes[depth][half],
            scale[depth][half],
            KIND == AFFINE ? minimum[depth][half] : 0.0f,
            reinterpret_cast<T*>(own[half]));
      }
    }
    if (step + DEPTH < STEPS) {
      load(depth, step + DEPTH);
    }
    #pragma unroll
    for (int t = 0; t < TILES; t++) {
      const uint4* const from = reinterpret_cast<const uint4*>(held[8 * t + quad] + step * 64 + column * 16);
      const uint4 low = from[0];
      const uint4 high = from[1];
      const unsigned values[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      #pragma unroll
      for (int i = 0; i < 8; i += 2) {
        const unsigned both[4] = {own[0][i], own[1][i], own[0][i + 1], own[1][i + 1]};
        accumulate<T>(sums[t], both, values[i], values[i + 1]);
      }
    }
  }
  #pragma unroll
  for (int t = 0; t < TILES; t++) {
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = 8 * t + 2 * column + i % 2;
      const int row_of_w = first + quad + i / 2 * 8;
      if (row < count && row_of_w < rows_of_w) {
        store(row, row_of_w, static_cast<T>(sums[t][i]));
      }
    }
  }
}
