// New positions of each row: queries and keys are normed and rotated, and keys and values are written behind
// those of the row's earlier positions. A block makes all heads of a position, a warp one after the other.
// at: where the first position is written. rows: for each row its first position, and what makes its index a
// position. Inputs that are not there are keys.

const int warp = threadIdx.x / 32;
const int row = blockIdx.y;
const int l = gridDim.x;
const int n_kv_heads = keys_shape[1];
const int n_heads = n_kv_heads * SHARED_BY;

let_next_begin();
wait_for_last();
// Whatever the arrays hold, nothing outside of the buffers is written.
const int64_t index = min(max(at[0], 0), keys_shape[2] - l) + static_cast<int>(blockIdx.x);
const float position = static_cast<float>(static_cast<int>(index) + rows[2 * row + 1]) * __int_as_float(SPEED);
const int64_t from = static_cast<int64_t>(blockIdx.x);

__shared__ float plain[WARPS][D];
__shared__ float sines[DIMS > 1 ? DIMS / 2 : 1];
__shared__ float cosines[DIMS > 1 ? DIMS / 2 : 1];
for (int pair = threadIdx.x; pair < DIMS / 2; pair += THREADS) {
  float sin, cos;
  sincosf(position * reinterpret_cast<const float*>(radians)[pair], &sin, &cos);
  sines[pair] = sin * __int_as_float(MAGNITUDE);
  cosines[pair] = cos * __int_as_float(MAGNITUDE);
}
__syncthreads();
OfLane<T, D> own, by;
for (int head = warp; head < n_heads + 2 * n_kv_heads; head += WARPS) {
  if (head < n_heads) {
    T* const to = queries + ((static_cast<int64_t>(row) * l + blockIdx.x) * n_heads + head) * D;
    own.load(q + row * q_strides[0] + from * q_strides[1] + Q_AT + head * D);
    if constexpr (NORM) {
      by.load(q_norm);
    }
    make_head<T, D, DIMS, NORM>(
        own, by, __int_as_float(EPS), plain[warp], sines, cosines, [&](int i, T value) { to[i] = value; });
  } else if (head < n_heads + n_kv_heads) {
    const int kv_head = head - n_heads;
    T* const to = const_cast<T*>(keys) + row * keys_strides[0] + kv_head * keys_strides[1] + index * keys_strides[2];
    own.load(k + row * k_strides[0] + from * k_strides[1] + K_AT + kv_head * D);
    if constexpr (NORM) {
      by.load(k_norm);
    }
    make_head<T, D, DIMS, NORM>(
        own, by, __int_as_float(EPS), plain[warp], sines, cosines, [&](int i, T value) { to[i] = value; });
  } else {
    const int kv_head = head - n_heads - n_kv_heads;
    T* const to =
        const_cast<T*>(values) + row * values_strides[0] + kv_head * values_strides[1] + index * values_strides[2];
    const T* const copied = v + row * v_strides[0] + from * v_strides[1] + V_AT + kv_head * D;
    for (int i = threadIdx.x % 32; i < D; i += 32) {
      to[i] = copied[i];
    }
  }
}
