// The weighted sum of what the chosen experts made of each row, eight values for each thread.

let_next_begin();
wait_for_last();
const int64_t index = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * 8;
const int64_t row = index / COLUMNS;
if (row < weights_shape[0]) {
  const int k = index % COLUMNS;
  float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  #pragma unroll
  for (int choice = 0; choice < CHOICES; choice++) {
    const int64_t at = row * CHOICES + choice;
    const float share = static_cast<float>(weights[at]);
    uint4 pack;
    stream_in(reinterpret_cast<const uint4*>(y + at * COLUMNS + k), pack);
    const unsigned words[4] = {pack.x, pack.y, pack.z, pack.w};
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const float2 pair = unpack<T>(words[i]);
      sums[2 * i] += share * pair.x;
      sums[2 * i + 1] += share * pair.y;
    }
  }
  uint4 results;
  const uint4 before = HAS_ONTO ? *reinterpret_cast<const uint4*>(onto + index) : make_uint4(0, 0, 0, 0);
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    T value = static_cast<T>(sums[i]);
    if (HAS_ONTO) {
      value = static_cast<T>(static_cast<float>(reinterpret_cast<const T*>(&before)[i]) + static_cast<float>(value));
    }
    reinterpret_cast<T*>(&results)[i] = value;
  }
  *reinterpret_cast<uint4*>(out + index) = results;
}
