// Packed weights as they are. Each thread makes eight values of a group at a time, so that a warp writes them side by side.

let_next_begin();
wait_for_last();
const int64_t values = static_cast<int64_t>(scales_shape[0]) * scales_shape[1] * GROUP_SIZE;
const int64_t first = (static_cast<int64_t>(blockIdx.x) * TIMES * THREADS + threadIdx.x) * 8;
unsigned codes[TIMES][BITS / 4];
float scale[TIMES];
float minimum[TIMES];
#pragma unroll
for (int i = 0; i < TIMES; i++) {
  const int64_t index = min(first + i * THREADS * 8, values - 8);
  load_8<BITS>(reinterpret_cast<const char*>(w) + index / 8 * BITS, codes[i]);
  scale[i] = scale_at<T, KIND, GROUP_SIZE>(scales, index / GROUP_SIZE);
  minimum[i] = KIND == AFFINE ? static_cast<float>(reinterpret_cast<const T*>(minima)[index / GROUP_SIZE]) : 0.0f;
}
#pragma unroll
for (int i = 0; i < TIMES; i++) {
  const int64_t index = first + i * THREADS * 8;
  if (index < values) {
    alignas(16) T made[8];
    unpack_8<T, KIND, BITS>(codes[i], scale[i], minimum[i], made);
    *reinterpret_cast<uint4*>(out + index) = *reinterpret_cast<const uint4*>(made);
  }
}
