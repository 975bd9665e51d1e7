// The values of x, then those of y: eight for each thread.

let_next_begin();
wait_for_last();
int64_t first = 1;
for (int i = 0; i < x_ndim; i++) {
  first *= x_shape[i];
}
int64_t count = 1;
for (int i = 0; i < y_ndim; i++) {
  count *= y_shape[i];
}
count += first;
const int64_t index = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * 8;
if (index < count) {
  const T* from = index < first ? x + index : y + (index - first);
  *reinterpret_cast<uint4*>(out + index) = *reinterpret_cast<const uint4*>(from);
}
