// One new position of each row: its queries and its key are normed and rotated, key and value are
// written behind those of the row's earlier positions, and the queries attend to all of them. GROUP
// query heads that share a key head are computed together, so that keys are read once; a warp looks at
// several keys at a time, on the tensor cores where TILED, and keeps its own softmax. The last block of a row's
// splits brings them together, a warp for each head: GROUP is at most BLOCK_WARPS where there are several splits. A row has fewer of them
// where each would take less than LEAST_SHARE keys.
// Where it BORROWS, key and value of the new position are another layer's, which wrote them before.
// at: where the position is written. rows: for each row its first position, and what makes its index a
// position. counters: a zero for each row and group, afterwards too. Inputs that are not there are keys.

const int warp = threadIdx.x / 32;
const int split = blockIdx.x;
const int head = blockIdx.y * GROUP;
const int kv_head = head / SHARED_BY;
const int row = blockIdx.z;
const int heads = gridDim.y * GROUP;

let_next_begin();
// Whatever the arrays hold, nothing outside of the buffers is read or written.
const int index_of_new = min(max(at[0], 0), keys_shape[2] - 1);
const int n = index_of_new + 1;
const int start = max(min(max(rows[2 * row], 0), n), WINDOW > 0 ? n - WINDOW : 0);
const float position = static_cast<float>(index_of_new + rows[2 * row + 1]) * __int_as_float(SPEED);
const int most_splits = gridDim.x;
const int splits = max(1, min(most_splits, (n - start + LEAST_SHARE - 1) / LEAST_SHARE));
if (split >= splits) {
  return;
}
const int share = (n - start + splits - 1) / splits;
const int first = start + split * share;
const int end = min(n, first + share);
