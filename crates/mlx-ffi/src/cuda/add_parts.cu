// The sums of PARTS arrays, which lie one behind the other, in their order. Each thread has four values.

let_next_begin();
wait_for_last();
const int count = parts_shape[1];
const int at = (blockIdx.x * THREADS + threadIdx.x) * 4;
if (at < count) {
  float4 sum = *reinterpret_cast<const float4*>(parts + at);
  #pragma unroll
  for (int i = 1; i < PARTS; i++) {
    const float4 more = *reinterpret_cast<const float4*>(parts + static_cast<int64_t>(i) * count + at);
    sum.x += more.x;
    sum.y += more.y;
    sum.z += more.z;
    sum.w += more.w;
  }
  const T all[4] = {
      static_cast<T>(sum.x), static_cast<T>(sum.y), static_cast<T>(sum.z), static_cast<T>(sum.w)};
  *reinterpret_cast<uint2*>(out + at) = *reinterpret_cast<const uint2*>(all);
}
