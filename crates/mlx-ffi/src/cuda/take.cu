// Rows of a table, one for each index; or, ALONG, entries of each row, whose indices stand in the same row. A table of one
// dimension has rows of one value, and indices of one dimension are one row. A table of three dimensions has rows of rows,
// counted one after the other.

let_next_begin();
wait_for_last();
const bool is_deep = !ALONG && table_ndim > 2;
const int64_t inner = is_deep ? table_shape[1] : 1;
const int64_t n = is_deep ? table_shape[0] * inner : table_shape[ALONG ? 1 : 0];
const int64_t width = !ALONG && table_ndim > 1 ? table_shape[table_ndim - 1] : 1;
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
  } else if (is_deep) {
    const int64_t from = index / inner * table_strides[0] + index % inner * table_strides[1];
    out[i] = table[from + i % width * table_strides[2]];
  } else {
    out[i] = table[index * table_strides[0] + (table_ndim > 1 ? i % width * table_strides[1] : 0)];
  }
}
