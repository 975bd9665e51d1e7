// The first half of each row of x, activated, times the second half: eight values for each thread.

wait_for_last();
const int half = x_shape[x_ndim - 1] / 2;
int rows_of_x = 1;
for (int i = 0; i + 1 < x_ndim; i++) {
  rows_of_x *= x_shape[i];
}
const int64_t index = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * 8;
if (index < static_cast<int64_t>(rows_of_x) * half) {
  const T* from = x + index / half * 2 * half + index % half;
  const uint4 gates = *reinterpret_cast<const uint4*>(from);
  const uint4 ups = *reinterpret_cast<const uint4*>(from + half);
  uint4 results;
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    const T* gate = reinterpret_cast<const T*>(&gates) + i;
    const T* up = reinterpret_cast<const T*>(&ups) + i;
    reinterpret_cast<T*>(&results)[i] = gated<GATE>(*gate, *up);
  }
  *reinterpret_cast<uint4*>(out + index) = results;
}
