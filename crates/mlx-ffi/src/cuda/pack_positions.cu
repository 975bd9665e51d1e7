// New positions of each row, packed behind the earlier ones: a block packs a head of a position.
// from: [rows, heads, positions, D], where they begin at `at`, and where the others see them as they are held if BACK.

let_next_begin();
wait_for_last();
const int64_t row = blockIdx.z;
const int64_t head = blockIdx.y;
const int l = gridDim.x;
// Whatever the arrays hold, nothing outside of the buffers is read or written.
const int64_t index = min(max(at[0], 0), min(from_shape[2], codes_shape[2]) - l) + static_cast<int>(blockIdx.x);
T* const source = const_cast<T*>(from) + row * from_strides[0] + head * from_strides[1] + index * from_strides[2];
for (int group = 0; group < D / SIZE; group++) {
  T own[SIZE / 32];
  #pragma unroll
  for (int i = 0; i < SIZE / 32; i++) {
    own[i] = source[group * SIZE + i * 32 + threadIdx.x];
  }
  pack_group<T, D, BITS, SIZE>(
      own,
      group,
      const_cast<uint32_t*>(codes) + row * codes_strides[0] + head * codes_strides[1] + index * codes_strides[2],
      const_cast<T*>(scales) + row * scales_strides[0] + head * scales_strides[1] + index * scales_strides[2],
      const_cast<T*>(biases) + row * biases_strides[0] + head * biases_strides[1] + index * biases_strides[2],
      [&](int i, T value) {
        if constexpr (BACK) {
          source[i] = value;
        }
      });
}
if (blockIdx.x + blockIdx.y + blockIdx.z == 0 && threadIdx.x == 0) {
  done[0] = 0;
}
