// Choices in the order of their experts, and the tiles of up to TILE_ROWS of them that share a matrix: expert, first
// place, how many, 0. One block; order among the choices of an expert is any.

let_next_begin();
wait_for_last();
int count = 1;
for (int i = 0; i < indices_ndim; i++) {
  count *= indices_shape[i];
}
__shared__ int counts[EXPERTS];
__shared__ int places[EXPERTS];
__shared__ int starts[2][SORTING];
const int expert = threadIdx.x;
if (expert < EXPERTS) {
  counts[expert] = 0;
}
__syncthreads();
for (int i = threadIdx.x; i < count; i += SORTING) {
  atomicAdd(counts + indices[i], 1);
}
__syncthreads();
const int own = expert < EXPERTS ? counts[expert] : 0;
const int own_tiles = (own + TILE_ROWS - 1) / TILE_ROWS;
// The sums up to each expert, of choices and of tiles.
starts[0][expert] = own;
starts[1][expert] = own_tiles;
__syncthreads();
for (int offset = 1; offset < SORTING; offset *= 2) {
  const int before = expert >= offset ? starts[0][expert - offset] : 0;
  const int tiles_before = expert >= offset ? starts[1][expert - offset] : 0;
  __syncthreads();
  starts[0][expert] += before;
  starts[1][expert] += tiles_before;
  __syncthreads();
}
const int start = starts[0][expert] - own;
if (expert < EXPERTS) {
  places[expert] = start;
}
int4* const all = reinterpret_cast<int4*>(tiles);
const int first = starts[1][expert] - own_tiles;
for (int i = 0; i < own_tiles; i++) {
  const int at = i * TILE_ROWS;
  all[first + i] = make_int4(expert, start + at, min(own - at, TILE_ROWS), 0);
}
const int most_tiles = (count + TILE_ROWS - 1) / TILE_ROWS + min(count, EXPERTS);
for (int i = starts[1][SORTING - 1] + threadIdx.x; i < most_tiles; i += SORTING) {
  all[i] = make_int4(0, 0, 0, 0);
}
__syncthreads();
for (int i = threadIdx.x; i < count; i += SORTING) {
  order[atomicAdd(places + indices[i], 1)] = i;
}
