// `x wᵀ` for a few rows of x, in one pass over w. A block has 32 rows of w, its warps take turns at
// blocks of 32 columns, and tensor cores multiply 16 rows of w with 8 of x. Both operands are in the
// same order of columns, so that a thread loads 16 bytes of a row at once; what a row of x gives does
// not depend on the others.

const T* w_rows[4];
#pragma unroll
for (int i = 0; i < 4; i++) {
  const int64_t row = min(first + quad + 8 * i, rows_of_w - 1);
  w_rows[i] = w + row * columns + part * 8;
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
