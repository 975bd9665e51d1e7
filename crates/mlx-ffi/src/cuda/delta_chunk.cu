// The gated delta rule over many positions. A block holds WARPS * SHARE rows of a head's state, eight lanes each of them.
// Its warps bring TILE positions at a time to shared memory, with queries and keys of length one, and load the next ones
// while these are computed. blockIdx.y is the head, blockIdx.z the row of the batch. The state is written in place: nobody
// else reads the rows that a block holds.

constexpr int WIDTH = DK / 32;
constexpr int PACKS = DK / 4;
constexpr int LINES = WARPS * SHARE;
constexpr int OWN = TILE / WARPS;
constexpr int KEYS = K_HEADS * DK;
constexpr int MIXED = 2 * KEYS + V_HEADS * DV;
constexpr float EPSILON = 1e-6f;
constexpr bool BY_COLUMN = DECAYS > 1;
// Decays that a lane brings.
constexpr int RATES = BY_COLUMN ? WIDTH : 1;
let_next_begin();
wait_for_last();
__shared__ float4 keys[TILE][PACKS];
__shared__ float4 queries[TILE][PACKS];
__shared__ float values[TILE][LINES];
__shared__ float results[TILE][LINES];
__shared__ float decays[TILE];
__shared__ float4 decays_of_columns[BY_COLUMN ? TILE : 1][PACKS];
__shared__ float betas[TILE];
__shared__ float products[TILE];
const int lane = threadIdx.x % 32;
const int warp = threadIdx.x / 32;
const int part = lane % 8;
const int line = warp * SHARE + lane / 8;
const int head = blockIdx.y;
const int64_t row = blockIdx.z;
const int l = mixed_shape[1];
const int64_t a_columns = a_shape[2];
const int64_t b_columns = b_shape[2];
const int first = blockIdx.x * LINES;
const int count = HAS_LENGTHS ? min(max(lengths[row], 0), l) : l;
const T* const own = mixed + row * l * MIXED;
const int key_at = head / (V_HEADS / K_HEADS) * DK + lane * WIDTH;
const bool has_value = first + lane < DV;
const bool has_line = first + line < DV;
float4* const held_at =
    reinterpret_cast<float4*>(const_cast<float*>(state) + ((row * V_HEADS + head) * DV + first + line) * DK) + part;
float4 held[WIDTH];
#pragma unroll
for (int i = 0; i < WIDTH; i++) {
  held[i] = has_line ? held_at[i * 8] : make_float4(0, 0, 0, 0);
}
const float rate = -expf(a_log[head]);
const int rates_at = BY_COLUMN ? head * DK + lane * WIDTH : head;
float added[RATES];
#pragma unroll
for (int i = 0; i < RATES; i++) {
  added[i] = dt_bias[rates_at + i];
}
T q_next[OWN][WIDTH];
T k_next[OWN][WIDTH];
T v_next[OWN];
T a_next[OWN][RATES];
T b_next[OWN];
auto load = [&](int tile) {
  #pragma unroll
  for (int n = 0; n < OWN; n++) {
    const int t = tile + warp * OWN + n;
    if (t < count) {
      const T* const from = own + static_cast<int64_t>(t) * MIXED;
      #pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        q_next[n][i] = from[key_at + i];
        k_next[n][i] = from[KEYS + key_at + i];
      }
      if (has_value) {
        v_next[n] = from[2 * KEYS + head * DV + first + lane];
      }
      #pragma unroll
      for (int i = 0; i < RATES; i++) {
        a_next[n][i] = a[(row * l + t) * a_columns + A_AT + rates_at + i];
      }
      b_next[n] = b[(row * l + t) * b_columns + B_AT + head];
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
    float q[WIDTH];
    float k[WIDTH];
    float sums[3] = {0, 0, 0};
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      q[i] = counts ? static_cast<float>(q_next[n][i]) : 0.0f;
      k[i] = counts ? static_cast<float>(k_next[n][i]) : 0.0f;
      sums[0] += q[i] * q[i];
      sums[1] += k[i] * k[i];
      sums[2] += q[i] * k[i];
    }
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      #pragma unroll
      for (int i = 0; i < 3; i++) {
        sums[i] += __shfl_xor_sync(0xffffffff, sums[i], offset);
      }
    }
    const float by_q = rsqrtf((sums[0] + EPSILON) * DK);
    const float by_k = rsqrtf(sums[1] + EPSILON);
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      reinterpret_cast<float*>(queries[at])[lane * WIDTH + i] = by_q * q[i];
      reinterpret_cast<float*>(keys[at])[lane * WIDTH + i] = by_k * k[i];
    }
    values[at][lane] = counts && has_value ? static_cast<float>(v_next[n]) : 0.0f;
    #pragma unroll
    for (int i = 0; i < RATES; i++) {
      const float moved = counts ? static_cast<float>(a_next[n][i]) + added[i] : 0.0f;
      const float softplus = moved > 20.0f ? moved : log1pf(expf(moved));
      const float decay = counts ? expf(rate * softplus) : 1.0f;
      if constexpr (BY_COLUMN) {
        reinterpret_cast<float*>(decays_of_columns[at])[lane * WIDTH + i] = decay;
      } else if (lane == 0) {
        decays[at] = decay;
      }
    }
    if (lane == 0) {
      betas[at] = counts ? 1.0f / (1.0f + expf(-static_cast<float>(b_next[n]))) : 0.0f;
      products[at] = by_q * by_k * sums[2];
    }
  }
  __syncthreads();
  load(tile + TILE);
  const int end = min(TILE, l - tile);
  for (int t = 0; t < end; t++) {
    float by_k = 0;
    float by_q = 0;
    float4 k[WIDTH];
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      k[i] = keys[t][i * 8 + part];
      if constexpr (BY_COLUMN) {
        const float4 by = decays_of_columns[t][i * 8 + part];
        held[i] = make_float4(held[i].x * by.x, held[i].y * by.y, held[i].z * by.z, held[i].w * by.w);
      }
      const float4 q = queries[t][i * 8 + part];
      by_k += held[i].x * k[i].x + held[i].y * k[i].y + (held[i].z * k[i].z + held[i].w * k[i].w);
      by_q += held[i].x * q.x + held[i].y * q.y + (held[i].z * q.z + held[i].w * q.w);
    }
    #pragma unroll
    for (int offset = 4; offset > 0; offset /= 2) {
      by_k += __shfl_xor_sync(0xffffffff, by_k, offset);
      by_q += __shfl_xor_sync(0xffffffff, by_q, offset);
    }
    const float decay = BY_COLUMN ? 1.0f : decays[t];
    const float wrong = (values[t][line] - decay * by_k) * betas[t];
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      held[i].x = decay * held[i].x + wrong * k[i].x;
      held[i].y = decay * held[i].y + wrong * k[i].y;
      held[i].z = decay * held[i].z + wrong * k[i].z;
      held[i].w = decay * held[i].w + wrong * k[i].w;
    }
    if (part == 0) {
      results[t][line] = decay * by_q + wrong * products[t];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < end * LINES; i += THREADS) {
    const int t = tile + i / LINES;
    const int value = first + i % LINES;
    if (value < DV) {
      const float result = t < count ? results[i / LINES][i % LINES] : 0.0f;
      out[(row * l + t) * (V_HEADS * DV) + head * DV + value] = static_cast<T>(result);
    }
  }
}
#pragma unroll
for (int i = 0; i < WIDTH; i++) {
  if (has_line) {
    held_at[i * 8] = held[i];
  }
}
