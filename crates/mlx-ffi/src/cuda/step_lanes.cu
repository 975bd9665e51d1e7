// Keys and values of one position of a row, by lanes: a warp looks at several keys at a time, each shared by the
// lanes that hold a head's values between them, which keep their own softmax.

// Keys and values of a row and a head.
template <typename T>
struct HeldKeys {
  T* keys;
  T* values;
  int64_t key_stride;
  int64_t value_stride;
  int end;

  // Some values of a key or a value, read at once.
  template <int WIDTH>
  struct Piece {
    static constexpr int PACK = 16 / sizeof(T);
    struct alignas(16) Pack {
      T values[PACK];
    };
    Pack packs[WIDTH / PACK];

    __device__ __forceinline__ void load(const T* from) {
      #pragma unroll
      for (int i = 0; i < WIDTH / PACK; i++) {
        packs[i] = reinterpret_cast<const Pack*>(from)[i];
      }
    }
    __device__ __forceinline__ float value(int i) const {
      return static_cast<float>(packs[i / PACK].values[i % PACK]);
    }
  };
  template <int WIDTH>
  __device__ __forceinline__ void load_key(int64_t key, int at, Piece<WIDTH>& to) const {
    to.load(keys + key * key_stride + at);
  }
  template <int WIDTH>
  __device__ __forceinline__ void load_value(int64_t key, int at, Piece<WIDTH>& to) const {
    to.load(values + key * value_stride + at);
  }
};
// How scores are made of products.
struct Scoring {
  float scale;
  float softcap;
  // A score for exp2, -1e38 where the key is not seen.
  __device__ __forceinline__ float of(float dot, bool is_seen) const {
    constexpr float LOG2_E = 1.44269504f;
    float score = dot * scale;
    if (softcap > 0) {
      score = softcap * tanhf(score / softcap);
    }
    return is_seen ? score * LOG2_E : -1e38f;
  }
};

template <typename Held, typename T, int D, int GROUP>
struct ByLanes {
  static constexpr int WIDTH = D < 128 || D > 256 ? 16 : 8;
  static constexpr int SHARING = D / WIDTH;
  static constexpr int KEYS = 32 / SHARING;
  static constexpr int TIMES = D < 128 ? 2 : 4;
  static constexpr int AT_ONCE = KEYS * TIMES;
  using Piece = typename Held::template Piece<WIDTH>;

  const int lane = threadIdx.x % SHARING;
  const int place = threadIdx.x % 32 / SHARING;
  Piece keys[TIMES];
  Piece values[TIMES];
  float query[GROUP][WIDTH];
  float sum[GROUP][WIDTH];
  float largest[GROUP];
  float total[GROUP];

  __device__ __forceinline__ void load(const Held& of, int base) {
    #pragma unroll
    for (int a = 0; a < TIMES; a++) {
      // What is not seen repeats the last key, and then counts for nothing.
      const int64_t key = min(base + a * KEYS + place, of.end - 1);
      of.load_key(key, lane * WIDTH, keys[a]);
      of.load_value(key, lane * WIDTH, values[a]);
    }
  }

  // Takes the key and the value of a position from elsewhere, where they are the first ones.
  __device__ __forceinline__ void replace(int base, int end, int index, const Held& fresh) {
    #pragma unroll
    for (int a = 0; a < TIMES; a++) {
      if (min(base + a * KEYS + place, end - 1) == index) {
        fresh.load_key(0, lane * WIDTH, keys[a]);
        fresh.load_value(0, lane * WIDTH, values[a]);
      }
    }
  }

  __device__ __forceinline__ void begin(const T (*queries)[D]) {
    #pragma unroll
    for (int g = 0; g < GROUP; g++) {
      largest[g] = -1e30f;
      total[g] = 0;
      #pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        query[g][i] = static_cast<float>(queries[g][lane * WIDTH + i]);
        sum[g][i] = 0;
      }
    }
  }

  // Takes what was loaded into account, and loads what is at `next`.
  __device__ __forceinline__ void attend(const Held& of, int base, int next, const Scoring& scoring) {
    #pragma unroll
    for (int a = 0; a < TIMES; a++) {
      const bool is_seen = base + a * KEYS + place < of.end;
      #pragma unroll
      for (int g = 0; g < GROUP; g++) {
        float dot = 0;
        #pragma unroll
        for (int i = 0; i < WIDTH; i++) {
          dot += query[g][i] * keys[a].value(i);
        }
        #pragma unroll
        for (int offset = SHARING / 2; offset > 0; offset /= 2) {
          dot += __shfl_xor_sync(0xffffffff, dot, offset);
        }
        const float score = scoring.of(dot, is_seen);
        const float highest = fmaxf(largest[g], score);
        const float factor = exp2f(largest[g] - highest);
        const float weight = exp2f(score - highest);
        largest[g] = highest;
        total[g] = total[g] * factor + weight;
        #pragma unroll
        for (int i = 0; i < WIDTH; i++) {
          sum[g][i] = sum[g][i] * factor + weight * values[a].value(i);
        }
      }
    }
    if (next < of.end) {
      load(of, next);
    }
  }

  // The sums, the largest score and the total weight of each head that this warp saw.
  __device__ __forceinline__ void write(float (*sums)[D], float* bounds, float* totals) {
    #pragma unroll
    for (int g = 0; g < GROUP; g++) {
      #pragma unroll
      for (int offset = SHARING; offset < 32; offset *= 2) {
        const float other = __shfl_xor_sync(0xffffffff, largest[g], offset);
        const float highest = fmaxf(largest[g], other);
        const float factor = exp2f(largest[g] - highest);
        const float other_factor = exp2f(other - highest);
        largest[g] = highest;
        total[g] = total[g] * factor + __shfl_xor_sync(0xffffffff, total[g], offset) * other_factor;
        #pragma unroll
        for (int i = 0; i < WIDTH; i++) {
          const float value = __shfl_xor_sync(0xffffffff, sum[g][i], offset);
          sum[g][i] = sum[g][i] * factor + value * other_factor;
        }
      }
      if (place == 0) {
        #pragma unroll
        for (int i = 0; i < WIDTH; i++) {
          sums[g][lane * WIDTH + i] = sum[g][i];
        }
        bounds[g] = largest[g];
        totals[g] = total[g];
      }
    }
  }
};
