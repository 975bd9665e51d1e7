// Keys and values of one position of a row, on the tensor cores: a warp looks at sixteen keys at a time, for up to
// eight heads that share them. Keys, and then values, are the rows of the first operand, heads the columns of the second. Which value
// of a head is which row or column is chosen so that each lane reads sixteen bytes at a time and has what it multiplies: nothing passes
// through shared memory. Values are also multiplied with what rounding took from the weights, so that none is rounded to their type.

// Of an operand: the head or the key of this lane, and its columns.
__device__ __forceinline__ int of_lane() { return threadIdx.x % 32 / 4; }
__device__ __forceinline__ int column() { return threadIdx.x % 4; }

// The softmax over the keys that a warp saw, and the values' sums, for heads `2 · column()` and the next one each.
template <int D>
struct TileSoftmax {
  static constexpr int READS = D / 64;
  // Of two values from `64 · read + 8 · of_lane() + 2 · pair` on.
  float sums[READS][4][4];
  float largest[2];
  float total[2];

  __device__ __forceinline__ void begin() {
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      largest[i] = -1e30f;
      total[i] = 0;
    }
    #pragma unroll
    for (int i = 0; i < READS * 4 * 4; i++) {
      sums[i / 16][i / 4 % 4][i % 4] = 0;
    }
  }

  // The largest of all lanes that have the same heads.
  static __device__ __forceinline__ float largest_of(float value) {
    #pragma unroll
    for (int offset = 4; offset < 32; offset *= 2) {
      value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, offset));
    }
    return value;
  }

  // Makes weights of the scores for exp2 of keys `of_lane()` of both halves of TILES tiles. What was summed before is multiplied with
  // what it counts for now, and `lessen` does that with what is summed elsewhere.
  template <int TILES, typename Lessen>
  __device__ __forceinline__ void weigh(float (&weights)[TILES][2][2], Lessen lessen) {
    float highest[2];
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      float own = fmaxf(weights[0][0][i], weights[0][1][i]);
      #pragma unroll
      for (int t = 1; t < TILES; t++) {
        own = fmaxf(own, fmaxf(weights[t][0][i], weights[t][1][i]));
      }
      highest[i] = fmaxf(largest[i], largest_of(own));
    }
    if (__any_sync(0xffffffff, highest[0] > largest[0] || highest[1] > largest[1])) {
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        const float factor = exp2f(largest[i] - highest[i]);
        total[i] *= factor;
        #pragma unroll
        for (int at = 0; at < READS * 8; at++) {
          sums[at / 8][at / 2 % 4][at % 2 * 2 + i] *= factor;
        }
        lessen(i, factor);
        largest[i] = highest[i];
      }
    }
    #pragma unroll
    for (int at = 0; at < TILES * 4; at++) {
      float& weight = weights[at / 4][at / 2 % 2][at % 2];
      weight = power_of_two(weight - highest[at % 2]);
      total[at % 2] += weight;
    }
  }

  // The sums, the largest score and the total weight of each of COUNT heads that this warp saw.
  template <int COUNT>
  __device__ __forceinline__ void write(float (*all)[D], float* bounds, float* totals) {
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      #pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) {
        total[i] += __shfl_xor_sync(0xffffffff, total[i], offset);
      }
      const int head = 2 * column() + i;
      if (head >= COUNT) {
        continue;
      }
      #pragma unroll
      for (int at = 0; at < READS * 4; at++) {
        const float (&found)[4] = sums[at / 4][at % 4];
        *reinterpret_cast<float2*>(all[head] + at / 4 * 64 + 8 * of_lane() + at % 4 * 2) = make_float2(found[i], found[i + 2]);
      }
      if (of_lane() == 0) {
        bounds[head] = largest[i];
        totals[head] = total[i];
      }
    }
  }
};

// Weights of keys `of_lane()` of both halves as columns of an operand: rounded ones, and what rounding took.
template <typename T>
struct TileWeights {
  unsigned rounded[2];
  unsigned taken[2];

  __device__ __forceinline__ void load(const float (&weights)[2][2]) {
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      const unsigned both = two_of<T>(weights[half][0], weights[half][1]);
      const float2 kept = unpack<T>(both);
      rounded[half] = transposed(both);
      taken[half] = transposed(two_of<T>(weights[half][0] - kept.x, weights[half][1] - kept.y));
    }
  }
  __device__ __forceinline__ void multiply(float* sums, const unsigned (&values)[4]) const {
    accumulate<T>(sums, values, rounded[0], rounded[1]);
    accumulate<T>(sums, values, taken[0], taken[1]);
  }
};

// The key of a tile whose value is in columns `2 · column() + i` of a half.
__device__ __forceinline__ int key_of_values(int base, int half, int i) { return base + 8 * half + 2 * column() + i; }

template <typename T, int D, int GROUP>
struct ByTiles {
  static_assert(GROUP <= 8 && D % 64 == 0, "the columns of an operand, and whole reads of values");
  static constexpr int AT_ONCE = 16;
  static constexpr int KEY_READS = D / 32;
  static constexpr int VALUE_READS = D / 64;

  // Of the keys of each half, `of_lane()`: from `32 · read + 8 · column()` on.
  uint4 keys[2][KEY_READS];
  // Of keys `2 · column()` and the next one of each half: from `64 · read + 8 · of_lane()` on.
  uint4 values[2][2][VALUE_READS];
  uint4 query[KEY_READS];
  TileSoftmax<D> softmax;

  __device__ __forceinline__ void load_keys(const HeldKeys<T>& of, int base) {
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      // What is not seen repeats the last key, and then counts for nothing.
      const int64_t key = min(base + 8 * half + of_lane(), of.end - 1);
      const uint4* const from = reinterpret_cast<const uint4*>(of.keys + key * of.key_stride);
      #pragma unroll
      for (int read = 0; read < KEY_READS; read++) {
        keys[half][read] = __ldcs(from + 4 * read + column());
      }
    }
  }

  __device__ __forceinline__ void load_values(const HeldKeys<T>& of, int base) {
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        const int64_t key = min(key_of_values(base, half, i), of.end - 1);
        const uint4* const from = reinterpret_cast<const uint4*>(of.values + key * of.value_stride);
        #pragma unroll
        for (int read = 0; read < VALUE_READS; read++) {
          values[half][i][read] = __ldcs(from + 8 * read + of_lane());
        }
      }
    }
  }

  __device__ __forceinline__ void load(const HeldKeys<T>& of, int base) {
    load_keys(of, base);
    load_values(of, base);
  }

  // Takes the key and the value of a position from elsewhere, where they are the first ones.
  __device__ __forceinline__ void replace(int base, int end, int index, const HeldKeys<T>& fresh) {
    if (index < base || (index >= base + AT_ONCE && index != end - 1)) {
      return;
    }
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      if (min(base + 8 * half + of_lane(), end - 1) == index) {
        #pragma unroll
        for (int read = 0; read < KEY_READS; read++) {
          keys[half][read] = reinterpret_cast<const uint4*>(fresh.keys)[4 * read + column()];
        }
      }
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        if (min(key_of_values(base, half, i), end - 1) == index) {
          #pragma unroll
          for (int read = 0; read < VALUE_READS; read++) {
            values[half][i][read] = reinterpret_cast<const uint4*>(fresh.values)[8 * read + of_lane()];
          }
        }
      }
    }
  }

  __device__ __forceinline__ void begin(const T (*queries)[D]) {
    softmax.begin();
    #pragma unroll
    for (int read = 0; read < KEY_READS; read++) {
      query[read] = make_uint4(0, 0, 0, 0);
      if (of_lane() < GROUP) {
        query[read] = reinterpret_cast<const uint4*>(queries[of_lane()])[4 * read + column()];
      }
    }
  }

  // Takes what was loaded into account, and loads what is at `next`.
  __device__ __forceinline__ void attend(const HeldKeys<T>& of, int base, int next, const Scoring& scoring) {
    // Of keys `of_lane()` of both halves, for two heads each. Two sums wait for each other half as long as one.
    float scores[2][4];
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      scores[i / 4][i % 4] = 0;
    }
    #pragma unroll
    for (int read = 0; read < KEY_READS; read++) {
      const unsigned first[4] = {keys[0][read].x, keys[1][read].x, keys[0][read].y, keys[1][read].y};
      const unsigned second[4] = {keys[0][read].z, keys[1][read].z, keys[0][read].w, keys[1][read].w};
      accumulate<T>(scores[0], first, query[read].x, query[read].y);
      accumulate<T>(scores[1], second, query[read].z, query[read].w);
    }
    if (next < of.end) {
      load_keys(of, next);
    }
    float weights[1][2][2];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int half = i / 2;
      weights[0][half][i % 2] = scoring.of(scores[0][i] + scores[1][i], base + 8 * half + of_lane() < of.end);
    }
    softmax.weigh(weights, [](int, float) {});
    TileWeights<T> by;
    by.load(weights[0]);
    #pragma unroll
    for (int read = 0; read < VALUE_READS; read++) {
      auto both = [&](int half, int pair, unsigned which) {
        auto word = [&](const uint4& pack) { return pair == 0 ? pack.x : pair == 1 ? pack.y : pair == 2 ? pack.z : pack.w; };
        return __byte_perm(word(values[half][0][read]), word(values[half][1][read]), which);
      };
      #pragma unroll
      for (int pair = 0; pair < 4; pair++) {
        const unsigned of_values[4] = {
            both(0, pair, 0x5410), both(0, pair, 0x7632), both(1, pair, 0x5410), both(1, pair, 0x7632)};
        by.multiply(softmax.sums[read][pair], of_values);
      }
    }
    if (next < of.end) {
      load_values(of, next);
    }
  }

  // The sums, the largest score and the total weight of each head that this warp saw.
  __device__ __forceinline__ void write(float (*all)[D], float* bounds, float* totals) {
    softmax.template write<GROUP>(all, bounds, totals);
  }
};
