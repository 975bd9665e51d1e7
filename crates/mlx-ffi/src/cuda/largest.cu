// A block finds the largest of a row of logits, which is NaN where one is.

__shared__ float shared[DRAWING / 32];
const int n = logits_shape[1];
const T* const values = logits + static_cast<int64_t>(blockIdx.x) * n;
float largest = -__int_as_float(0x7f800000);
auto take = [&](float value) {
  // NaN is not as small as anything, and stays.
  if (!(value <= largest) && largest == largest) {
    largest = value;
  }
};
#pragma unroll 4
for (int i = threadIdx.x; i < n; i += DRAWING) {
  take(static_cast<float>(values[i]));
}
for (int offset = 16; offset > 0; offset /= 2) {
  take(__shfl_xor_sync(0xffffffffu, largest, offset));
}
if (threadIdx.x % 32 == 0) {
  shared[threadIdx.x / 32] = largest;
}
__syncthreads();
if (threadIdx.x == 0) {
  for (int w = 1; w < DRAWING / 32; w++) {
    take(shared[w]);
  }
  out[blockIdx.x] = largest;
}
