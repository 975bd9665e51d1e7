// Packed keys and values of one position of a row on the tensor cores, as `step_tiles.cu` has those that are not. Codes are multiplied
// as numbers, of which all bits fit. Scales and biases are those of a key: its products are multiplied with the first, and so are
// its weights before values are. Groups have 64 values, as many as a lane's neighbours read at once. A warp looks at TILES times
// sixteen keys at a time, so that as many bytes are on their way as of keys that are not packed.

// Words that are read at once.
template <int COUNT>
struct alignas(4 * COUNT) Words {
  unsigned all[COUNT];
};

// What codes are raised by where their bits become numbers of this type.
template <typename T>
constexpr float RAISE_OF = IS_HALF<T> ? 1024.0f : 128.0f;
template <typename T>
constexpr unsigned RAISED_BITS = IS_HALF<T> ? 0x64006400 : 0x43004300;
// Codes k and k + 4 of a word of eight, raised.
template <typename T>
__device__ __forceinline__ unsigned raised_pair(unsigned word, int k) {
  return word >> 4 * k & 0x000f000f | RAISED_BITS<T>;
}

template <typename T, int D, int GROUP, int BITS, int TILES>
struct ByPackedTiles {
  static_assert(GROUP <= 8 && D % 64 == 0, "the columns of an operand, and whole groups");
  static constexpr int SIZE = 64;
  using Held = PackedKeys<T, BITS, SIZE>;
  static constexpr int AT_ONCE = 16 * TILES;
  static constexpr int READS = D / SIZE;
  // Queries are multiplied with codes in a type that has all bits of both, once they are near one.
  using Q = __half;
  // Weights have any factor, so values are multiplied in a type of any size.
  using V = __nv_bfloat16;
  static constexpr float RAISE_OF_VALUES = BITS == 4 ? RAISE_OF<V> : 0.0f;

  // One number for each group.
  struct alignas(sizeof(T) * READS) Grades {
    T all[READS];
  };
  struct Tile {
    // Of the keys of each half, `of_lane()`: from `64 · read + 16 · column()` on.
    Words<BITS / 2> keys[2][READS];
    // Of keys `2 · column()` and the next one of each half: from `64 · read + 8 · of_lane()` on.
    Words<BITS / 4> values[2][2][READS];
    // Scales and biases of the keys of each half, `of_lane()`, and of their values.
    Grades of_keys[2][2];
    Grades of_values[2][2];
  };
  Tile tiles[TILES];
  // Pairs of values as a lane's codes come in pairs.
  unsigned query[READS][8];
  // For heads `2 · column()` and the next one: the factor of products, and the sum of a group's values.
  float factor[2];
  float whole[READS][2];
  // What biases of values add, for the same heads.
  float added[READS][2];
  TileSoftmax<D> softmax;

  template <typename P>
  static __device__ __forceinline__ void read(const void* from, P& to, bool is_fresh) {
    if (is_fresh) {
      to = *static_cast<const P*>(from);
    } else {
      stream_in(static_cast<const P*>(from), to);
    }
  }
  static __device__ __forceinline__ void read_grades(const GradesOf<T>& of, int64_t at, Grades (&to)[2]) {
    to[0] = *reinterpret_cast<const Grades*>(of.scales + at);
    to[1] = *reinterpret_cast<const Grades*>(of.biases + at);
  }

  __device__ __forceinline__ void load_key(const Held& of, int64_t key, int half, Tile& tile, bool is_fresh) {
    const uint32_t* const from = of.keys + key * of.key_stride + column() * BITS / 2;
    #pragma unroll
    for (int r = 0; r < READS; r++) {
      read(from + 2 * BITS * r, tile.keys[half][r], is_fresh);
    }
    read_grades(of.of_keys, key * of.keys_apart, tile.of_keys[half]);
  }
  // Scales and biases of a value belong to the lane that has the score of its key.
  __device__ __forceinline__ void load_grades(const Held& of, int64_t key, int half, Tile& tile) {
    read_grades(of.of_values, key * of.values_apart, tile.of_values[half]);
  }
  __device__ __forceinline__ void load_value(const Held& of, int64_t key, int half, int i, Tile& tile, bool is_fresh) {
    const uint32_t* const from = of.values + key * of.value_stride + of_lane() * BITS / 4;
    #pragma unroll
    for (int r = 0; r < READS; r++) {
      read(from + 2 * BITS * r, tile.values[half][i][r], is_fresh);
    }
  }
  // What is not seen repeats the last key, and then counts for nothing.
  __device__ __forceinline__ void load_keys(const Held& of, int base) {
    #pragma unroll
    for (int at = 0; at < 2 * TILES; at++) {
      load_key(of, min(base + 8 * at + of_lane(), of.end - 1), at % 2, tiles[at / 2], false);
    }
  }
  __device__ __forceinline__ void load_values(const Held& of, int base) {
    #pragma unroll
    for (int at = 0; at < 2 * TILES; at++) {
      const int half = at % 2;
      load_grades(of, min(base + 8 * at + of_lane(), of.end - 1), half, tiles[at / 2]);
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        load_value(of, min(key_of_values(base + at / 2 * 16, half, i), of.end - 1), half, i, tiles[at / 2], false);
      }
    }
  }
  __device__ __forceinline__ void load(const Held& of, int base) {
    load_keys(of, base);
    load_values(of, base);
  }

  // Takes the key and the value of a position from elsewhere, where they are the first ones.
  __device__ __forceinline__ void replace(int base, int end, int index, const Held& fresh) {
    if (index < base || (index >= base + AT_ONCE && index != end - 1)) {
      return;
    }
    #pragma unroll
    for (int at = 0; at < 2 * TILES; at++) {
      const int half = at % 2;
      Tile& tile = tiles[at / 2];
      if (min(base + 8 * at + of_lane(), end - 1) == index) {
        load_key(fresh, 0, half, tile, true);
        load_grades(fresh, 0, half, tile);
      }
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        if (min(key_of_values(base + at / 2 * 16, half, i), end - 1) == index) {
          load_value(fresh, 0, half, i, tile, true);
        }
      }
    }
  }

  __device__ __forceinline__ void begin(const T (*queries)[D]) {
    softmax.begin();
    // Of head `of_lane()`.
    float2 own[READS][8];
    float largest = 0;
    #pragma unroll
    for (int at = 0; at < READS * 8; at++) {
      const int word = of_lane() < GROUP ? of_lane() : 0;
      own[at / 8][at % 8] =
          unpack<T>(reinterpret_cast<const unsigned*>(queries[word])[at / 8 * 32 + 8 * column() + at % 8]);
      largest = fmaxf(largest, fmaxf(fabsf(own[at / 8][at % 8].x), fabsf(own[at / 8][at % 8].y)));
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 2));
    // A power of two, such that the largest value is near one.
    const float power = __uint_as_float(min(max(__float_as_uint(largest), 0x0d000000u), 0x71000000u) & 0x7f800000);
    const float lessened = of_lane() < GROUP ? 1.0f / power : 0.0f;
    #pragma unroll
    for (int r = 0; r < READS; r++) {
      float sum = 0;
      float near[16];
      #pragma unroll
      for (int i = 0; i < 8; i++) {
        near[2 * i] = static_cast<float>(static_cast<Q>(own[r][i].x * lessened));
        near[2 * i + 1] = static_cast<float>(static_cast<Q>(own[r][i].y * lessened));
        sum += near[2 * i] + near[2 * i + 1];
      }
      #pragma unroll
      for (int i = 0; i < 8; i++) {
        // Of eight bits, codes k and k + 2 of a word of four come together; of four bits, k and k + 4 of a word of eight.
        constexpr int OF_WORD = 32 / BITS;
        const int first = 2 * i / OF_WORD * OF_WORD + i % (OF_WORD / 2);
        query[r][i] = two_of<Q>(near[first], near[first + OF_WORD / 2]);
      }
      sum += __shfl_xor_sync(0xffffffff, sum, 1);
      sum += __shfl_xor_sync(0xffffffff, sum, 2);
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        whole[r][i] = __shfl_sync(0xffffffff, sum, 4 * (2 * column() + i));
        added[r][i] = 0;
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      factor[i] = __shfl_sync(0xffffffff, power, 4 * (2 * column() + i));
    }
  }

  // Pair `i` of a lane's codes of a key.
  static __device__ __forceinline__ unsigned pair_of(const Words<BITS / 2>& words, int i) {
    if constexpr (BITS == 4) {
      return raised_pair<Q>(words.all[i / 4], i % 4);
    } else {
      return words.all[i / 2] >> i % 2 * 8 & 0x00ff00ff | RAISED_BITS<Q>;
    }
  }
  // Code `i` of two keys.
  static __device__ __forceinline__ unsigned code_of_both(const Words<BITS / 4>& one, const Words<BITS / 4>& other, int i) {
    if constexpr (BITS == 4) {
      return __byte_perm(raised_pair<V>(one.all[0], i % 4), raised_pair<V>(other.all[0], i % 4), i < 4 ? 0x5410 : 0x7632);
    } else {
      return __byte_perm(__float_as_uint(raised<8>(one.all, i)), __float_as_uint(raised<8>(other.all, i)), 0x7632);
    }
  }

  // Products of queries with the keys of a tile.
  __device__ __forceinline__ void score(const Tile& tile, float (&dots)[2][2]) const {
    #pragma unroll
    for (int r = 0; r < READS; r++) {
      float products[4] = {0, 0, 0, 0};
      #pragma unroll
      for (int i = 0; i < 8; i += 2) {
        const unsigned codes[4] = {
            pair_of(tile.keys[0][r], i), pair_of(tile.keys[1][r], i), pair_of(tile.keys[0][r], i + 1), pair_of(tile.keys[1][r], i + 1)};
        accumulate<Q>(products, codes, query[r][i], query[r][i + 1]);
      }
      #pragma unroll
      for (int half = 0; half < 2; half++) {
        const float scale = static_cast<float>(tile.of_keys[half][0].all[r]);
        const float shift = static_cast<float>(tile.of_keys[half][1].all[r]) - RAISE_OF<Q> * scale;
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          const float dot = scale * products[2 * half + i] + shift * whole[r][i];
          dots[half][i] = r == 0 ? dot : dots[half][i] + dot;
        }
      }
    }
  }
  // Adds the values of a tile by their weights.
  __device__ __forceinline__ void add(const Tile& tile, const float (&weights)[2][2]) {
    #pragma unroll
    for (int r = 0; r < READS; r++) {
      float scaled[2][2];
      #pragma unroll
      for (int half = 0; half < 2; half++) {
        const float scale = static_cast<float>(tile.of_values[half][0].all[r]);
        const float shift = static_cast<float>(tile.of_values[half][1].all[r]) - RAISE_OF_VALUES * scale;
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          scaled[half][i] = scale * weights[half][i];
          added[r][i] += shift * weights[half][i];
        }
      }
      TileWeights<V> by;
      by.load(scaled);
      #pragma unroll
      for (int pair = 0; pair < 4; pair++) {
        const auto& values = tile.values;
        const unsigned codes[4] = {
            code_of_both(values[0][0][r], values[0][1][r], 2 * pair),
            code_of_both(values[0][0][r], values[0][1][r], 2 * pair + 1),
            code_of_both(values[1][0][r], values[1][1][r], 2 * pair),
            code_of_both(values[1][0][r], values[1][1][r], 2 * pair + 1)};
        by.multiply(softmax.sums[r][pair], codes);
      }
    }
  }

  // Takes what was loaded into account, and loads what is at `next`.
  __device__ __forceinline__ void attend(const Held& of, int base, int next, const Scoring& scoring) {
    float weights[TILES][2][2];
    #pragma unroll
    for (int t = 0; t < TILES; t++) {
      score(tiles[t], weights[t]);
    }
    if (next < of.end) {
      load_keys(of, next);
    }
    #pragma unroll
    for (int at = 0; at < TILES * 4; at++) {
      const int half = at / 2;
      float& weight = weights[at / 4][half % 2][at % 2];
      weight = scoring.of(weight * factor[at % 2], base + 8 * half + of_lane() < of.end);
    }
    softmax.weigh(weights, [&](int i, float by) {
      #pragma unroll
      for (int r = 0; r < READS; r++) {
        added[r][i] *= by;
      }
    });
    #pragma unroll
    for (int t = 0; t < TILES; t++) {
      add(tiles[t], weights[t]);
    }
    if (next < of.end) {
      load_values(of, next);
    }
  }

  // The sums, the largest score and the total weight of each head that this warp saw.
  __device__ __forceinline__ void write(float (*all)[D], float* bounds, float* totals) {
    #pragma unroll
    for (int r = 0; r < READS; r++) {
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        #pragma unroll
        for (int offset = 4; offset < 32; offset *= 2) {
          added[r][i] += __shfl_xor_sync(0xffffffff, added[r][i], offset);
        }
        #pragma unroll
        for (int at = 0; at < 4; at++) {
          softmax.sums[r][at][i] += added[r][i];
          softmax.sums[r][at][i + 2] += added[r][i];
        }
      }
    }
    softmax.template write<GROUP>(all, bounds, totals);
  }
};
