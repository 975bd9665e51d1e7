// How products of a few rows of x end: the warps' sums become one.

__shared__ float parts[WARPS][WEIGHT_ROWS][TILES * 8 + 1];
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
for (int index = threadIdx.x; index < WEIGHT_ROWS * TILES * 8; index += THREADS) {
  const int row = index / WEIGHT_ROWS;
  const int column = index % WEIGHT_ROWS;
  if (row < rows_of_x && first + column < rows_of_w) {
    float sum = 0;
    #pragma unroll
    for (int i = 0; i < WARPS; i++) {
      sum += parts[i][column][row];
    }
    out[static_cast<int64_t>(row) * rows_of_w + first + column] = static_cast<T>(sum);
  }
}
