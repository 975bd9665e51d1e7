// The softmax of scores that come KEYS at a time. A thread has two queries: lane / 4 of its warp, and eight further. Of each eight keys
// it has two, from 2 (lane mod 4) on; so scores are those of KEYS / 8 products of 16 × 8.

template <typename T, int KEYS, int D, int WINDOW, int CAP>
struct Softmax {
  // What scores are multiplied with to be exponents of two, behind the cap.
  float by;
  float scale;
  // The last key that each query sees.
  int last[2];
  float largest[2] = {-1e30f, -1e30f};
  float total[2] = {0, 0};

  __device__ __forceinline__ Softmax(float scale, int first_query)
      : by((CAP != 0 ? 1.0f : scale) * 1.44269504f),
        scale(scale),
        last{first_query + static_cast<int>(threadIdx.x) % 32 / 4, first_query + static_cast<int>(threadIdx.x) % 32 / 4 + 8} {}

  // Weights of the keys behind `from`, two by two, instead of scores. What was summed is scaled to the largest score.
  __device__ __forceinline__ void take(float* scores, int from, bool sees_all, float* sums, unsigned* weights) {
    if constexpr (CAP != 0) {
      const float cap = __int_as_float(CAP);
      #pragma unroll
      for (int i = 0; i < KEYS / 2; i++) {
        scores[i] = cap * tanhf(scores[i] * scale / cap);
      }
    }
    if (!sees_all) {
      #pragma unroll
      for (int i = 0; i < KEYS / 2; i++) {
        const int key = from + i / 4 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
        const int of_query = last[i / 2 % 2];
        const bool seen = key <= of_query && (WINDOW == 0 || key > of_query - WINDOW);
        scores[i] = seen ? scores[i] : -1e38f;
      }
    }
    float highest[2] = {largest[0], largest[1]};
    #pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
      highest[i / 2 % 2] = fmaxf(highest[i / 2 % 2], scores[i]);
    }
    bool rises = false;
    #pragma unroll
    for (int q = 0; q < 2; q++) {
      highest[q] = fmaxf(highest[q], __shfl_xor_sync(0xffffffff, highest[q], 1));
      highest[q] = fmaxf(highest[q], __shfl_xor_sync(0xffffffff, highest[q], 2));
      rises |= highest[q] > largest[q];
    }
    if (__any_sync(0xffffffff, rises)) {
      #pragma unroll
      for (int q = 0; q < 2; q++) {
        const float factor = power_of_two((largest[q] - highest[q]) * by);
        largest[q] = highest[q];
        total[q] *= factor;
        #pragma unroll
        for (int i = 0; i < D / 8; i++) {
          sums[i * 4 + 2 * q] *= factor;
          sums[i * 4 + 2 * q + 1] *= factor;
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < KEYS / 4; i++) {
      const float zero = -largest[i % 2] * by;
      const float one = power_of_two(fmaf(scores[2 * i], by, zero));
      const float other = power_of_two(fmaf(scores[2 * i + 1], by, zero));
      total[i % 2] += one + other;
      weights[i] = two_of<T>(one, other);
    }
  }

  // What the sums of a query are multiplied with in the end, beside a sink where there is one.
  template <bool HAS_SINK>
  __device__ __forceinline__ float ended(int q, float sink) const {
    float all = total[q];
    all += __shfl_xor_sync(0xffffffff, all, 1);
    all += __shfl_xor_sync(0xffffffff, all, 2);
    float factor = 1;
    if constexpr (HAS_SINK) {
      const float seen = largest[q] * by;
      const float beside = sink * 1.44269504f;
      const float most = fmaxf(seen, beside);
      factor = power_of_two(seen - most);
      all = all * factor + power_of_two(beside - most);
    }
    return all > 0 ? factor / all : 0.0f;
  }
};
