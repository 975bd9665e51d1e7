// Packed weights as they are: sixteen columns of a row for each thread, which are of one group.

let_next_begin();
wait_for_last();
const int64_t groups = static_cast<int64_t>(scales_shape[0]) * scales_shape[1];
const int64_t index = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * 16;
if (index < groups * GROUP_SIZE) {
  const int64_t group = index / GROUP_SIZE;
  unsigned codes[BITS / 2];
  load_16<BITS>(reinterpret_cast<const char*>(w) + index / 8 * BITS, codes);
  const float scale = scale_at<T, KIND, GROUP_SIZE>(scales, group);
  const float minimum = KIND == AFFINE ? static_cast<float>(reinterpret_cast<const T*>(minima)[group]) : 0.0f;
  alignas(16) T made[16];
  unpack_16<T, KIND, BITS>(codes, scale, minimum, made);
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    *reinterpret_cast<uint4*>(out + index + 8 * i) = *reinterpret_cast<const uint4*>(made + 8 * i);
  }
}
