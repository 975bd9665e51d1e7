// WIDTH columns of x from AT on, times `by`: a number for each of them, or the first one for all. Eight values for each thread.

let_next_begin();
wait_for_last();
const int64_t all = x_shape[x_ndim - 1];
int64_t rows = 1;
for (int i = 0; i + 1 < x_ndim; i++) {
  rows *= x_shape[i];
}
const int64_t index = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * 8;
const int64_t row = index / WIDTH;
if (row < rows) {
  const int column = index % WIDTH;
  const uint4 values = *reinterpret_cast<const uint4*>(x + row * all + AT + column);
  uint4 products;
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    const float value = static_cast<float>(reinterpret_cast<const T*>(&values)[i]);
    const T factor = static_cast<T>(by[IS_ROW ? column + i : 0]);
    reinterpret_cast<T*>(&products)[i] = static_cast<T>(value * static_cast<float>(factor));
  }
  *reinterpret_cast<uint4*>(out + index) = products;
}
