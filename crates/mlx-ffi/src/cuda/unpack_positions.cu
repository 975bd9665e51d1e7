// The positions of each row before `at`, unpacked: a warp unpacks a head of a position.
// into: [rows, heads, positions, D].

let_next_begin();
wait_for_last();
const int64_t row = blockIdx.z;
const int64_t head = blockIdx.y;
const int64_t index = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / 32;
// Whatever the arrays hold, nothing outside of the buffers is read or written.
if (index < min(at[0], min(into_shape[2], codes_shape[2]))) {
  constexpr int OF_LANE = D / 32;
  const int first = threadIdx.x % 32 * OF_LANE;
  const unsigned char* const own = reinterpret_cast<const unsigned char*>(
      codes + row * codes_strides[0] + head * codes_strides[1] + index * codes_strides[2]);
  const int64_t group = first / SIZE;
  const float scale =
      static_cast<float>(scales[row * scales_strides[0] + head * scales_strides[1] + index * scales_strides[2] + group]);
  const float bias =
      static_cast<float>(biases[row * biases_strides[0] + head * biases_strides[1] + index * biases_strides[2] + group]);
  T* const target = const_cast<T*>(into) + row * into_strides[0] + head * into_strides[1] + index * into_strides[2] + first;
  #pragma unroll
  for (int i = 0; i < OF_LANE; i++) {
    const int at_code = first + i;
    const unsigned code = BITS == 8 ? own[at_code] : own[at_code / 2] >> at_code % 2 * 4 & 15;
    target[i] = static_cast<T>(scale * code + bias);
  }
}
if (blockIdx.x + blockIdx.y + blockIdx.z == 0 && threadIdx.x == 0) {
  done[0] = 0;
}
