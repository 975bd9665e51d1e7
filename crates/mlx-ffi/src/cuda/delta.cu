// The gated delta rule, position by position. A head's state decays as a whole, or each column by itself: DECAYS of a head. A warp holds SHARE rows of a head's state in registers, DK / 32 columns for
// each lane. The products of the old state with query and key give the new result, so that one round of sums
// is enough. blockIdx.y is the head, blockIdx.z the row of the batch. The state is written in place: nobody else reads
// the rows that a warp holds.

constexpr int WIDTH = DK / 32;
constexpr int KEYS = K_HEADS * DK;
constexpr int MIXED = 2 * KEYS + V_HEADS * DV;
constexpr float EPSILON = 1e-6f;
constexpr bool BY_COLUMN = DECAYS > 1;
// Decays that a lane knows.
constexpr int RATES = BY_COLUMN ? WIDTH : 1;
let_next_begin();
wait_for_last();
const int lane = threadIdx.x % 32;
const int head = blockIdx.y;
const int64_t row = blockIdx.z;
const int l = mixed_shape[1];
const int64_t a_columns = a_shape[2];
const int64_t b_columns = b_shape[2];
const int first = (blockIdx.x * WARPS + threadIdx.x / 32) * SHARE;
if (first < DV) {
  const int count = HAS_LENGTHS ? min(max(lengths[row], 0), l) : l;
  const T* const own = mixed + row * l * MIXED;
  const int key_at = head / (V_HEADS / K_HEADS) * DK + lane * WIDTH;
  const int64_t state_at = ((row * V_HEADS + head) * DV + first) * DK + lane * WIDTH;
  float held[SHARE][WIDTH];
  #pragma unroll
  for (int s = 0; s < SHARE; s++) {
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      held[s][i] = state[state_at + s * DK + i];
    }
  }
  const float rate = -expf(a_log[head]);
  const int rates_at = BY_COLUMN ? head * DK + lane * WIDTH : head;
  float added[RATES];
  #pragma unroll
  for (int i = 0; i < RATES; i++) {
    added[i] = dt_bias[rates_at + i];
  }
  T q_next[WIDTH];
  T k_next[WIDTH];
  T v_next[SHARE];
  T a_next[RATES];
  T b_next;
  auto load = [&](int t) {
    const T* const from = own + static_cast<int64_t>(t) * MIXED;
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      q_next[i] = from[key_at + i];
      k_next[i] = from[KEYS + key_at + i];
    }
    #pragma unroll
    for (int s = 0; s < SHARE; s++) {
      v_next[s] = from[2 * KEYS + head * DV + first + s];
    }
    #pragma unroll
    for (int i = 0; i < RATES; i++) {
      a_next[i] = a[(row * l + t) * a_columns + A_AT + rates_at + i];
    }
    b_next = b[(row * l + t) * b_columns + B_AT + head];
  };
  if (count > 0) {
    load(0);
  }
  for (int t = 0; t < count; t++) {
    float q[WIDTH];
    float k[WIDTH];
    float v[SHARE];
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      q[i] = static_cast<float>(q_next[i]);
      k[i] = static_cast<float>(k_next[i]);
    }
    #pragma unroll
    for (int s = 0; s < SHARE; s++) {
      v[s] = static_cast<float>(v_next[s]);
    }
    const float beta = 1.0f / (1.0f + expf(-static_cast<float>(b_next)));
    float decays[RATES];
    #pragma unroll
    for (int i = 0; i < RATES; i++) {
      const float moved = static_cast<float>(a_next[i]) + added[i];
      const float softplus = moved > 20.0f ? moved : log1pf(expf(moved));
      decays[i] = expf(rate * softplus);
    }
    if constexpr (BY_COLUMN) {
      #pragma unroll
      for (int s = 0; s < SHARE; s++) {
        #pragma unroll
        for (int i = 0; i < WIDTH; i++) {
          held[s][i] *= decays[i];
        }
      }
    }
    const float decay = BY_COLUMN ? 1.0f : decays[0];
    if (t + 1 < count) {
      load(t + 1);
    }
    // Squares of the query and of the key, their product, then the state's with each.
    constexpr int SUMS = 3 + 2 * SHARE;
    float sums[SUMS];
    #pragma unroll
    for (int n = 0; n < SUMS; n++) {
      sums[n] = 0;
    }
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      sums[0] += q[i] * q[i];
      sums[1] += k[i] * k[i];
      sums[2] += q[i] * k[i];
      #pragma unroll
      for (int s = 0; s < SHARE; s++) {
        sums[3 + s] += held[s][i] * k[i];
        sums[3 + SHARE + s] += held[s][i] * q[i];
      }
    }
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      #pragma unroll
      for (int n = 0; n < SUMS; n++) {
        sums[n] += __shfl_xor_sync(0xffffffff, sums[n], offset);
      }
    }
    const float by_q = rsqrtf((sums[0] + EPSILON) * DK);
    const float by_k = rsqrtf(sums[1] + EPSILON);
    #pragma unroll
    for (int s = 0; s < SHARE; s++) {
      const float wrong = (v[s] - decay * by_k * sums[3 + s]) * beta * by_k;
      #pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        held[s][i] = decay * held[s][i] + wrong * k[i];
      }
      if (lane == s) {
        const float result = by_q * (decay * sums[3 + SHARE + s] + wrong * sums[2]);
        out[(row * l + t) * (V_HEADS * DV) + head * DV + first + s] = static_cast<T>(result);
      }
    }
  }
  for (int t = count; t < l; t++) {
    if (lane < SHARE) {
      out[(row * l + t) * (V_HEADS * DV) + head * DV + first + lane] = static_cast<T>(0.0f);
    }
  }
  #pragma unroll
  for (int s = 0; s < SHARE; s++) {
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      const_cast<float*>(state)[state_at + s * DK + i] = held[s][i];
    }
  }
}
