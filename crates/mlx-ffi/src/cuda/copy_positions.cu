// Copies positions of one row of `part`, [rows, heads, positions, width], to its place in `kept`, [copies, heads, count, width]; a block's
// z is the copy, its y the head.
template <typename T, typename Shape, typename Strides>
__device__ void copy_positions_of(
    const T* part,
    const Shape& shape,
    const Strides& strides,
    T* kept,
    const int* place) {
  const int64_t row = place[0];
  const int64_t first = place[2];
  const int64_t count = place[4];
  // Whatever the arrays hold, nothing outside of the buffers is read or written.
  const bool is_inside = row >= 0 && row < shape[0] && first >= 0 && count >= 0 && first + count <= shape[2];
  if (!is_inside || blockIdx.y >= shape[1]) {
    return;
  }
  const int64_t width = shape[3];
  const T* const source = part + row * strides[0] + blockIdx.y * strides[1] + first * strides[2];
  T* const target = kept + (blockIdx.z * shape[1] + blockIdx.y) * count * width;
  constexpr int PACK = 16 / sizeof(T);
  const auto begins = reinterpret_cast<unsigned long long>(source) | reinterpret_cast<unsigned long long>(target);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (begins % 16 == 0 && width % PACK == 0 && strides[2] % PACK == 0 && strides[3] == 1) {
    const int64_t packs = width / PACK;
    for (int64_t i = index; i < count * packs; i += step) {
      reinterpret_cast<uint4*>(target)[i] = reinterpret_cast<const uint4*>(source + i / packs * strides[2])[i % packs];
    }
  } else {
    for (int64_t i = index; i < count * width; i += step) {
      target[i] = source[i / width * strides[2] + i % width * strides[3]];
    }
  }
}
