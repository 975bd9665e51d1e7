// The selective scan of Mamba 2, position by position. A warp holds SHARE rows of a head's state in registers, N / 32
// columns for each lane. blockIdx.y is the head, blockIdx.z the row of the batch. The state is written in place: nobody
// else reads the rows that a warp holds.

constexpr int WIDTH = N / 32;
constexpr int INNER = HEADS * P;
constexpr int MIXED = INNER + 2 * GROUPS * N;
let_next_begin();
wait_for_last();
const int lane = threadIdx.x % 32;
const int head = blockIdx.y;
const int64_t row = blockIdx.z;
const int l = mixed_shape[1];
const int64_t dt_columns = dt_shape[2];
const int first = (blockIdx.x * WARPS + threadIdx.x / 32) * SHARE;
if (first < P) {
  const int count = HAS_LENGTHS ? min(max(lengths[row], 0), l) : l;
  const T* const own = mixed + row * l * MIXED;
  const int b_at = INNER + head / (HEADS / GROUPS) * N + lane * WIDTH;
  float* const lines = const_cast<float*>(state) + ((row * HEADS + head) * P + first) * N + lane * WIDTH;
  float held[SHARE][WIDTH];
  #pragma unroll
  for (int s = 0; s < SHARE; s++) {
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      held[s][i] = lines[s * N + i];
    }
  }
  const float rate = -expf(a_log[head]);
  const float added = dt_bias[head];
  const float passed = d[head];
  T b_next[WIDTH];
  T c_next[WIDTH];
  T x_next[SHARE];
  T dt_next;
  auto load = [&](int t) {
    const T* const from = own + static_cast<int64_t>(t) * MIXED;
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      b_next[i] = from[b_at + i];
      c_next[i] = from[b_at + GROUPS * N + i];
    }
    #pragma unroll
    for (int s = 0; s < SHARE; s++) {
      x_next[s] = from[head * P + first + s];
    }
    dt_next = dt[(row * l + t) * dt_columns + DT_AT + head];
  };
  if (count > 0) {
    load(0);
  }
  for (int t = 0; t < count; t++) {
    float b[WIDTH];
    float c[WIDTH];
    float x[SHARE];
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      b[i] = static_cast<float>(b_next[i]);
      c[i] = static_cast<float>(c_next[i]);
    }
    #pragma unroll
    for (int s = 0; s < SHARE; s++) {
      x[s] = static_cast<float>(x_next[s]);
    }
    const float moved = static_cast<float>(dt_next) + added;
    const float softplus = moved > 20.0f ? moved : log1pf(expf(moved));
    const float step = fminf(fmaxf(softplus, __int_as_float(LEAST)), __int_as_float(LARGEST));
    const float decay = expf(rate * step);
    if (t + 1 < count) {
      load(t + 1);
    }
    float sums[SHARE];
    #pragma unroll
    for (int s = 0; s < SHARE; s++) {
      const float moving = step * x[s];
      sums[s] = 0;
      #pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        held[s][i] = decay * held[s][i] + moving * b[i];
        sums[s] += held[s][i] * c[i];
      }
    }
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      #pragma unroll
      for (int s = 0; s < SHARE; s++) {
        sums[s] += __shfl_xor_sync(0xffffffff, sums[s], offset);
      }
    }
    #pragma unroll
    for (int s = 0; s < SHARE; s++) {
      if (lane == s) {
        out[(row * l + t) * INNER + head * P + first + s] = static_cast<T>(sums[s] + passed * x[s]);
      }
    }
  }
  for (int t = count; t < l; t++) {
    if (lane < SHARE) {
      out[(row * l + t) * INNER + head * P + first + lane] = static_cast<T>(0.0f);
    }
  }
  #pragma unroll
  for (int s = 0; s < SHARE; s++) {
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      lines[s * N + i] = held[s][i];
    }
  }
}
