// How products of a few rows of x begin: a block has 32 rows of w and up to 32 of x, and a thread sums for
// each 16 of the former and each eight of the latter.

wait_for_last();
int rows_of_x = 1;
for (int i = 0; i + 1 < x_ndim; i++) {
  rows_of_x *= x_shape[i];
}
const int columns = x_shape[x_ndim - 1];
const int rows_of_w = w_shape[0];
const int first_of_x = blockIdx.y * TILES * 8;
x += static_cast<int64_t>(first_of_x) * columns;
out += static_cast<int64_t>(first_of_x) * rows_of_w;
rows_of_x = min(rows_of_x - first_of_x, TILES * 8);
const int warp = threadIdx.x / 32;
const int quad = threadIdx.x % 32 / 4;
const int part = threadIdx.x % 4;
const int first = blockIdx.x * WEIGHT_ROWS;
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
