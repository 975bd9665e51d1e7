// Queries of one new position of each row in the space of latents, and what is remembered of the position: a latent, which is normed,
// and the values of a key that all heads share, which are rotated as those of queries are. Of the blocks of a head the last one
// rotates, the others multiply; those behind the last head remember. Each has up to 8 · TILES rows.
// at: where the position is written. rows: for each row its first position, and what makes its index a position.

constexpr int WIDTH = RANK + ROPE;
constexpr int ROWS = 8 * TILES;
const int head = blockIdx.y;
const int first_row = blockIdx.z * ROWS;
const int count = min(ROWS, held_shape[0] - first_row);
const int warp = threadIdx.x / 32;
const int lane = threadIdx.x % 32;
const bool is_last = blockIdx.x + 1 == gridDim.x;

let_next_begin();
if (head < HEADS && !is_last) {
  __shared__ alignas(16) T of_head[ROWS][NOPE + 8];
  T* const to = queries + (static_cast<int64_t>(first_row) * HEADS + head) * WIDTH;
  multiply_head<T, NOPE, TILES, KIND, BITS, GROUP_SIZE>(
      w + head * w_strides[0],
      w_strides[1],
      scales + (KIND == DENSE ? 0 : head * scales_strides[0]),
      minima + (KIND == AFFINE ? head * minima_strides[0] : 0),
      KIND == DENSE ? 0 : scales_strides[1],
      RANK,
      (blockIdx.x * PRODUCT_WARPS + warp) * 16,
      q + first_row * q_strides[0] + head * (NOPE + ROPE),
      q_strides[0],
      count,
      of_head,
      [&](int row, int i, T value) { to[static_cast<int64_t>(row) * HEADS * WIDTH + i] = value; });
} else {
  wait_for_last();
  // Whatever the arrays hold, nothing outside of the buffer is written.
  const int index = min(max(at[0], 0), held_shape[2] - 1);
  const int first = head < HEADS ? warp : blockIdx.x * PRODUCT_WARPS + warp;
  const int step = head < HEADS ? PRODUCT_WARPS : gridDim.x * PRODUCT_WARPS;
  for (int i = first; i < count; i += step) {
    const int row = first_row + i;
    const T* from = latents + row * latents_strides[0];
    T* to = const_cast<T*>(held) + row * held_strides[0] + index * held_strides[2];
    if (head < HEADS) {
      from = q + row * q_strides[0] + head * (NOPE + ROPE) + NOPE;
      to = queries + (static_cast<int64_t>(row) * HEADS + head) * WIDTH + RANK;
    } else {
      float plain[RANK / 32];
      float total = 0;
      #pragma unroll
      for (int j = 0; j < RANK / 32; j++) {
        plain[j] = static_cast<float>(from[32 * j + lane]);
        total += plain[j] * plain[j];
      }
      #pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) {
        total += __shfl_xor_sync(0xffffffff, total, offset);
      }
      const float factor = rsqrtf(total / RANK + __int_as_float(EPS));
      #pragma unroll
      for (int j = 0; j < RANK / 32; j++) {
        const T even = static_cast<T>(plain[j] * factor);
        to[32 * j + lane] = static_cast<T>(static_cast<float>(even) * static_cast<float>(norm[32 * j + lane]));
      }
      from += RANK;
      to += RANK;
    }
    const float position = static_cast<float>(index + rows[2 * row + 1]) * __int_as_float(SPEED);
    for (int pair = lane; pair < ROPE / 2; pair += 32) {
      const int low = NEIGHBOURS ? 2 * pair : pair;
      const int high = NEIGHBOURS ? low + 1 : low + ROPE / 2;
      const float a = static_cast<float>(from[low]);
      const float b = static_cast<float>(from[high]);
      float sin = 0;
      float cos = 1;
      if constexpr (TURNS) {
        sincosf(position * reinterpret_cast<const float*>(radians)[pair], &sin, &cos);
        sin *= __int_as_float(MAGNITUDE);
        cos *= __int_as_float(MAGNITUDE);
      }
      to[low] = static_cast<T>(a * cos - b * sin);
      to[high] = static_cast<T>(b * cos + a * sin);
    }
  }
}
