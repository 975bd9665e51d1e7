// Rows of a table, one for each index; or, ALONG, entries of each row, whose indices stand in the same row. A table of one
// dimension has rows of one value, and indices of one dimension are one row.

let_next_begin();
wait_for_last();
const int64_t n = table_shape[ALONG ? 1 : 0];
const int64_t width = !ALONG && table_ndim > 1 ? table_shape[1] : 1;
const int64_t each = indices_ndim > 1 ? indices_shape[1] : indices_shape[0];
const int64_t rows = indices_ndim > 1 ? indices_shape[0] : 1;
const int64_t all = rows * each * width;
const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += step) {
  const int64_t place = i / width;
  const int64_t row = place / each;
  const int64_t at = indices_ndim > 1 ? row * indices_strides[0] + place % each * indices_strides[1]
                                      : place * indices_strides[0];
  // Whatever the indices hold, nothing outside of the table is read.
  const int64_t index = min(static_cast<int64_t>(indices[at]), n - 1);
  if (ALONG) {
    out[i] = table[row * table_strides[0] + index * table_strides[1]];
  } else {
    out[i] = table[index * table_strides[0] + (table_ndim > 1 ? i % width * table_strides[1] : 0)];
  }
}
