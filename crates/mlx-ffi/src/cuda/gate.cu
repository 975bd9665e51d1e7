// Columns of `gate`, activated, times columns of `up`: sixteen bytes for each thread. A value of the gate is for EACH
// values of `up`, which has WIDTH of them. Without HAS_UP, it is as if `up` were 1 everywhere.
// first: where they begin in `up`, if IS_APART; nobody writes it.

let_next_begin();
const int up_at = IS_APART ? static_cast<int>(first[0]) : UP_AT;
wait_for_last();
constexpr int READ = 16 / sizeof(T);
const int64_t gate_columns = gate_shape[gate_ndim - 1];
const int64_t up_columns = up_shape[up_ndim - 1];
int64_t rows = 1;
for (int i = 0; i + 1 < up_ndim; i++) {
  rows *= up_shape[i];
}
const int64_t index = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * READ;
const int64_t row = index / WIDTH;
if (row < rows) {
  const int column = index % WIDTH;
  const T* const gates = gate + row * gate_columns + GATE_AT;
  const uint4 ups = *reinterpret_cast<const uint4*>(up + row * up_columns + up_at + column);
  uint4 opens;
  if constexpr (EACH == 1) {
    opens = *reinterpret_cast<const uint4*>(gates + column);
  } else {
    #pragma unroll
    for (int i = 0; i < READ; i++) {
      reinterpret_cast<T*>(&opens)[i] = gates[(column + i) / EACH];
    }
  }
  uint4 results;
  #pragma unroll
  for (int i = 0; i < READ; i++) {
    const T open = reinterpret_cast<const T*>(&opens)[i];
    const T passing = HAS_UP ? reinterpret_cast<const T*>(&ups)[i] : static_cast<T>(1.0f);
    reinterpret_cast<T*>(&results)[i] = gated<GATE>(open, passing);
  }
  *reinterpret_cast<uint4*>(out + index) = results;
}
