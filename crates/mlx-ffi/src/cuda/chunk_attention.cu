// Attention of several new positions of each row to all from the row's first one to themselves: flash attention
// on the tensor cores. A block has QUERIES positions of one head.
// queries: [b, l, heads, D]. at, rows: as where the positions were written. sinks: queries, where there are none.

const int warp = threadIdx.x / 32;
const int lane = threadIdx.x % 32;
const int head = blockIdx.y;
const int row = blockIdx.z;
const int64_t heads = gridDim.y;
const int l = queries_shape[1];
// The last ones see the most keys, so they begin first.
const int first_query = (static_cast<int>(gridDim.x - 1 - blockIdx.x)) * QUERIES;

let_next_begin();
wait_for_last();
// Whatever the arrays hold, nothing outside of the buffers is read.
const int base = min(max(at[0], 0), keys_shape[2] - l);
const int end = base + min(first_query + QUERIES, l);
const int start = min(max(rows[2 * row], 0), end);
const int own_first = base + first_query + warp * 16;
const Chunk<T> chunk{
    queries + ((static_cast<int64_t>(row) * l + first_query) * heads + head) * D,
    heads * D,
    l - first_query,
    keys + row * keys_strides[0] + head / SHARED_BY * keys_strides[1],
    keys_strides[2],
    values + row * values_strides[0] + head / SHARED_BY * values_strides[1],
    values_strides[2],
    max(start, WINDOW > 0 ? base + first_query + 1 - WINDOW : 0),
    end,
    own_first};
using Way = typename Either<
    HAS_WARPGROUPS<T> && (D == 64 || D == 128),
    ByWarpgroup<T, D == 64 ? 64 : 128, WINDOW, SOFTCAP>,
    ByWarps<T, D, WINDOW, SOFTCAP>>::Type;
typename Way::Soft softmax(__int_as_float(SCALE), own_first);
float sums[D / 2];
#pragma unroll
for (int i = 0; i < D / 2; i++) {
  sums[i] = 0;
}
Way::attend(chunk, softmax, sums);
#pragma unroll
for (int q = 0; q < 2; q++) {
  const float part = softmax.ended<HAS_SINKS>(q, HAS_SINKS ? static_cast<float>(sinks[head]) : 0.0f);
  const int query_at = first_query + warp * 16 + lane / 4 + 8 * q;
  if (query_at < l) {
    T* const to = out + ((static_cast<int64_t>(row) * l + query_at) * heads + head) * D + lane % 4 * 2;
    #pragma unroll
    for (int i = 0; i < D / 8; i++) {
      *reinterpret_cast<unsigned*>(to + i * 8) = two_of<T>(sums[i * 4 + 2 * q] * part, sums[i * 4 + 2 * q + 1] * part);
    }
  }
}
