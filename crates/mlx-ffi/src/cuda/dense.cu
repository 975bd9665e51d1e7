// `x wᵀ` for a few rows of x, in one pass over w. A block has 32 rows of w, its warps take turns at
// blocks of 32 columns, and tensor cores multiply 16 rows of w with 8 of x. Both operands are in the
// same order of columns, so that a thread loads 16 bytes of a row at once; what a row of x gives does
// not depend on the others.

constexpr int WARPS = 8;
constexpr int ROWS = 32;
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

const T* w_rows[4];
#pragma unroll
for (int i = 0; i < 4; i++) {
  const int64_t row = min(first + quad + 8 * i, rows_of_w - 1);
  w_rows[i] = w + row * columns + part * 8;
}
float sums[2][TILES][4];
#pragma unroll
for (int m = 0; m < 2; m++) {
  #pragma unroll
  for (int t = 0; t < TILES; t++) {
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      sums[m][t][i] = 0;
    }
  }
}
#pragma unroll 2
for (int block = warp; block < columns / 32; block += WARPS) {
  uint4 weights[4];
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    weights[i] = *reinterpret_cast<const uint4*>(w_rows[i] + block * 32);
  }
  #pragma unroll
  for (int t = 0; t < TILES; t++) {
    const int row = t * 8 + quad;
    uint4 values = make_uint4(0, 0, 0, 0);
    if (row < rows_of_x) {
      values = *reinterpret_cast<const uint4*>(x + row * columns + block * 32 + part * 8);
    }
    #pragma unroll
    for (int m = 0; m < 2; m++) {
      const uint4 upper = weights[2 * m];
      const uint4 lower = weights[2 * m + 1];
      multiply(sums[m][t], upper.x, lower.x, upper.y, lower.y, values.x, values.y);
      multiply(sums[m][t], upper.z, lower.z, upper.w, lower.w, values.z, values.w);
    }
  }
}
__shared__ float parts[WARPS][ROWS][TILES * 8 + 1];
#pragma unroll
for (int m = 0; m < 2; m++) {
  #pragma unroll
  for (int t = 0; t < TILES; t++) {
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      parts[warp][m * 16 + quad + i / 2 * 8][t * 8 + part * 2 + i % 2] = sums[m][t][i];
    }
  }
}
__syncthreads();
for (int index = threadIdx.x; index < ROWS * TILES * 8; index += WARPS * 32) {
  const int row = index / ROWS;
  const int column = index % ROWS;
  if (row < rows_of_x && first + column < rows_of_w) {
    float sum = 0;
    #pragma unroll
    for (int i = 0; i < WARPS; i++) {
      sum += parts[i][column][row];
    }
    out[static_cast<int64_t>(row) * rows_of_w + first + column] = static_cast<T>(sum);
  }
}
