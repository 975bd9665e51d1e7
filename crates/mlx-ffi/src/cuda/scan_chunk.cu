// The selective scan of Mamba 2 over many positions, as delta_chunk.cu takes them. A block holds WARPS * SHARE rows of a
// head's state, eight lanes each of them. Its warps bring TILE positions at a time to shared memory. blockIdx.y is the
// head, blockIdx.z the row of the batch. The state is written in place: nobody else reads the rows that a block holds.

constexpr int WIDTH = N / 32;
constexpr int PACKS = N / 4;
constexpr int LINES = WARPS * SHARE;
constexpr int OWN = TILE / WARPS;
constexpr int INNER = HEADS * P;
constexpr int MIXED = INNER + 2 * GROUPS * N;
let_next_begin();
wait_for_last();
__shared__ float4 writes[TILE][PACKS];
__shared__ float4 reads[TILE][PACKS];
__shared__ float values[TILE][LINES];
__shared__ float results[TILE][LINES];
__shared__ float decays[TILE];
__shared__ float steps[TILE];
const int lane = threadIdx.x % 32;
const int warp = threadIdx.x / 32;
const int part = lane % 8;
const int line = warp * SHARE + lane / 8;
const int head = blockIdx.y;
const int64_t row = blockIdx.z;
const int l = mixed_shape[1];
const int64_t dt_columns = dt_shape[2];
const int first = blockIdx.x * LINES;
const int count = HAS_LENGTHS ? min(max(lengths[row], 0), l) : l;
const T* const own = mixed + row * l * MIXED;
const int b_at = INNER + head / (HEADS / GROUPS) * N + lane * WIDTH;
const bool has_value = first + lane < P;
const bool has_line = first + line < P;
float4* const held_at =
    reinterpret_cast<float4*>(const_cast<float*>(state) + ((row * HEADS + head) * P + first + line) * N) + part;
float4 held[WIDTH];
#pragma unroll
for (int i = 0; i < WIDTH; i++) {
  held[i] = has_line ? held_at[i * 8] : make_float4(0, 0, 0, 0);
}
const float rate = -expf(a_log[head]);
const float added = dt_bias[head];
const float passed = d[head];
T b_next[OWN][WIDTH];
T c_next[OWN][WIDTH];
T x_next[OWN];
T dt_next[OWN];
auto load = [&](int tile) {
  #pragma unroll
  for (int n = 0; n < OWN; n++) {
    const int t = tile + warp * OWN + n;
    if (t < count) {
      const T* const from = own + static_cast<int64_t>(t) * MIXED;
      #pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        b_next[n][i] = from[b_at + i];
        c_next[n][i] = from[b_at + GROUPS * N + i];
      }
      if (has_value) {
        x_next[n] = from[head * P + first + lane];
      }
      dt_next[n] = dt[(row * l + t) * dt_columns + DT_AT + head];
    }
  }
};
load(0);
for (int tile = 0; tile < l; tile += TILE) {
  #pragma unroll
  for (int n = 0; n < OWN; n++) {
    const int at = warp * OWN + n;
    // Positions that do not count leave the state as it is.
    const bool counts = tile + at < count;
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      reinterpret_cast<float*>(writes[at])[lane * WIDTH + i] = counts ? static_cast<float>(b_next[n][i]) : 0.0f;
      reinterpret_cast<float*>(reads[at])[lane * WIDTH + i] = counts ? static_cast<float>(c_next[n][i]) : 0.0f;
    }
    values[at][lane] = counts && has_value ? static_cast<float>(x_next[n]) : 0.0f;
    if (lane == 0) {
      const float moved = counts ? static_cast<float>(dt_next[n]) + added : 0.0f;
      const float softplus = moved > 20.0f ? moved : log1pf(expf(moved));
      const float step = fminf(fmaxf(softplus, __int_as_float(LEAST)), __int_as_float(LARGEST));
      steps[at] = counts ? step : 0.0f;
      decays[at] = counts ? expf(rate * step) : 1.0f;
    }
  }
  __syncthreads();
  load(tile + TILE);
  const int end = min(TILE, l - tile);
  for (int t = 0; t < end; t++) {
    const float decay = decays[t];
    const float x = values[t][line];
    const float moving = steps[t] * x;
    float sum = 0;
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      const float4 b = writes[t][i * 8 + part];
      const float4 c = reads[t][i * 8 + part];
      held[i].x = decay * held[i].x + moving * b.x;
      held[i].y = decay * held[i].y + moving * b.y;
      held[i].z = decay * held[i].z + moving * b.z;
      held[i].w = decay * held[i].w + moving * b.w;
      sum += held[i].x * c.x + held[i].y * c.y + (held[i].z * c.z + held[i].w * c.w);
    }
    #pragma unroll
    for (int offset = 4; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(0xffffffff, sum, offset);
    }
    if (part == 0) {
      results[t][line] = sum + passed * x;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < end * LINES; i += THREADS) {
    const int t = tile + i / LINES;
    const int value = first + i % LINES;
    if (value < P) {
      const float result = t < count ? results[i / LINES][i % LINES] : 0.0f;
      out[(row * l + t) * INNER + head * P + value] = static_cast<T>(result);
    }
  }
}
#pragma unroll
for (int i = 0; i < WIDTH; i++) {
  if (has_line) {
    held_at[i * 8] = held[i];
  }
}
