// What blocks found of the parts of a row's keys, brought together: a block for each head of a row. Each part has its largest
// score, for exp2, and what its weights add up to.

const int splits = partial_shape[2];
const int64_t head_at = static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
const float* const found = parts + head_at * splits * 2;
__shared__ float shares[MOST_SPLITS];

let_next_begin();
wait_for_last();
if (threadIdx.x < 32) {
  float highest = -1e30f;
  for (int split = threadIdx.x; split < splits; split += 32) {
    highest = fmaxf(highest, found[2 * split]);
  }
  #pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, offset));
  }
  float all = 0;
  for (int split = threadIdx.x; split < splits; split += 32) {
    all += found[2 * split + 1] * exp2f(found[2 * split] - highest);
  }
  #pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    all += __shfl_xor_sync(0xffffffff, all, offset);
  }
  for (int split = threadIdx.x; split < splits; split += 32) {
    shares[split] = all > 0 ? exp2f(found[2 * split] - highest) / all : 0.0f;
  }
}
__syncthreads();
for (int i = 4 * threadIdx.x; i < RANK; i += 4 * blockDim.x) {
  const float* const from = partial + head_at * splits * RANK + i;
  float4 value = make_float4(0, 0, 0, 0);
  #pragma unroll 8
  for (int split = 0; split < splits; split++) {
    const float4 part = *reinterpret_cast<const float4*>(from + static_cast<int64_t>(split) * RANK);
    const float share = shares[split];
    value.x += part.x * share;
    value.y += part.y * share;
    value.z += part.z * share;
    value.w += part.w * share;
  }
  *reinterpret_cast<uint2*>(out + head_at * RANK + i) =
      make_uint2(two_of<T>(value.x, value.y), two_of<T>(value.z, value.w));
}
