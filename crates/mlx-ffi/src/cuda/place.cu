// Positions of rows of one buffer, copied into the slots of another: the blocks of one z copy one row's, those of one y a
// head's. places: for each row its index in `from`, its slot in `into`, its first position in each, how many positions it has, and
// how many in front of these become zeros.

let_next_begin();
wait_for_last();
const int* const place = places + PLACE_NUMBERS * blockIdx.z;
const int64_t row = place[0];
const int64_t slot = place[1];
const int64_t first = place[2];
const int64_t at = place[3];
const int64_t count = place[4];
const int64_t before = place[5];
// Whatever the arrays hold, nothing outside of the buffers is read or written.
const bool is_inside = row >= 0 && row < from_shape[0] && slot >= 0 && slot < into_shape[0] && first >= 0 &&
    at >= before && before >= 0 && count >= 0 && first + count <= from_shape[2] && at + count <= into_shape[2];
if (is_inside) {
  const T* const source = from + row * from_strides[0] + blockIdx.y * from_strides[1] + first * from_strides[2];
  T* const target =
      const_cast<T*>(into) + slot * into_strides[0] + blockIdx.y * into_strides[1] + at * into_strides[2];
  const int64_t width = from_shape[3];
  constexpr int PACK = 16 / sizeof(T);
  const auto begins = reinterpret_cast<unsigned long long>(source) | reinterpret_cast<unsigned long long>(target);
  const bool is_aligned = begins % 16 == 0 && width % PACK == 0 && from_strides[2] % PACK == 0 &&
      into_strides[2] % PACK == 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (is_aligned) {
    const int64_t packs = width / PACK;
    for (int64_t i = index; i < count * packs; i += step) {
      const int64_t position = i / packs;
      const int64_t pack = i % packs;
      reinterpret_cast<uint4*>(target + position * into_strides[2])[pack] =
          reinterpret_cast<const uint4*>(source + position * from_strides[2])[pack];
    }
    for (int64_t i = index; i < before * packs; i += step) {
      reinterpret_cast<uint4*>(target - (1 + i / packs) * into_strides[2])[i % packs] = make_uint4(0, 0, 0, 0);
    }
  } else {
    for (int64_t i = index; i < count * width; i += step) {
      const int64_t position = i / width;
      const int64_t value = i % width;
      target[position * into_strides[2] + value] = source[position * from_strides[2] + value];
    }
    for (int64_t i = index; i < before * width; i += step) {
      target[i % width - (1 + i / width) * into_strides[2]] = static_cast<T>(0);
    }
  }
}
if (blockIdx.x + blockIdx.y + blockIdx.z == 0 && threadIdx.x == 0) {
  done[0] = 0;
}
