// Each head's values of some rows, `[rows, heads, in]`, times a matrix of its own, `[heads, out, in]`: `[rows, heads, out]`. A block
// has 16 · PRODUCT_WARPS rows of a matrix, and up to 8 · TILES of x.

constexpr int ROWS = 8 * TILES;
const int head = blockIdx.y;
const int heads = gridDim.y;
const int first_row = blockIdx.z * ROWS;
const int rows_of_w = w_shape[1];
__shared__ alignas(16) T of_head[ROWS][IN + 8];

let_next_begin();
const int64_t matrix = static_cast<int64_t>(head) * rows_of_w;
const int64_t groups = KIND == DENSE ? 0 : scales_shape[2];
T* const to = out + (static_cast<int64_t>(first_row) * heads + head) * rows_of_w;
multiply_head<T, IN, TILES, KIND, BITS, GROUP_SIZE>(
    w + matrix * w_shape[2],
    w_shape[2],
    scales + matrix * groups,
    minima + (KIND == AFFINE ? matrix * groups : 0),
    groups,
    rows_of_w,
    (blockIdx.x * PRODUCT_WARPS + threadIdx.x / 32) * 16,
    x + (static_cast<int64_t>(first_row) * heads + head) * IN,
    static_cast<int64_t>(heads) * IN,
    min(ROWS, x_shape[0] - first_row),
    of_head,
    [&](int row, int i, T value) { to[static_cast<int64_t>(row) * heads * rows_of_w + i] = value; });
