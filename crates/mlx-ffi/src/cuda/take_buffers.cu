// Rows of buffers, [rows, heads, positions, width], one for each index: the blocks of one z copy one row, those of one y a head.

let_next_begin();
wait_for_last();
// Whatever the indices hold, nothing outside of the buffers is read.
const unsigned last = static_cast<unsigned>(table_shape[0]) - 1;
const int row = static_cast<int>(min(static_cast<unsigned>(indices[blockIdx.z * indices_strides[0]]), last));
const int place[PLACE_NUMBERS] = {row, 0, 0, 0, static_cast<int>(table_shape[2]), 0};
copy_positions_of(table, table_shape, table_strides, out, place);
