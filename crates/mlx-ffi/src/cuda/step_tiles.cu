// Keys and values of one position of a row, on the tensor cores: a warp looks at sixteen keys at a time, for up to
// eight heads that share them. Which value of a head is which column of an operand is chosen so that each lane reads
// sixteen bytes at a time and has what it multiplies: nothing passes through shared memory. The operand of weights has sixteen rows:
// eight of them have what rounding took from the other eight, so that no weight is rounded to the values' type.

template <typename T, int D, int GROUP>
struct ByTiles {
  static_assert(GROUP <= 8 && D % 64 == 0, "half of an operand's rows, and whole reads of values");
  static constexpr int AT_ONCE = 16;
  static constexpr int KEY_READS = D / 32;
  static constexpr int VALUE_READS = D / 64;

  // Of an operand: the head or the key of this lane, and its columns.
  const int of_lane = threadIdx.x % 32 / 4;
  const int column = threadIdx.x % 4;
  // Of the keys of each half, `of_lane`: from `32 · read + 8 · column` on.
  uint4 keys[2][KEY_READS];
  // Of keys `2 · column` and the next one of each half: from `64 · read + 8 · of_lane` on.
  uint4 values[2][2][VALUE_READS];
  uint4 query[KEY_READS];
  float sums[VALUE_READS][8][4];
  float largest;
  float total;

  __device__ __forceinline__ int key_of_values(int base, int half, int i) const {
    return base + 8 * half + 2 * column + i;
  }

  __device__ __forceinline__ void load_keys(const HeldKeys<T>& of, int base) {
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      // What is not seen repeats the last key, and then counts for nothing.
      const int64_t key = min(base + 8 * half + of_lane, of.end - 1);
      const uint4* const from = reinterpret_cast<const uint4*>(of.keys + key * of.key_stride);
      #pragma unroll
      for (int read = 0; read < KEY_READS; read++) {
        keys[half][read] = from[4 * read + column];
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
          values[half][i][read] = from[8 * read + of_lane];
        }
      }
    }
  }

  __device__ __forceinline__ void load(const HeldKeys<T>& of, int base) {
    load_keys(of, base);
    load_values(of, base);
  }

  // Takes the key and the value of a position from elsewhere.
  __device__ __forceinline__ void replace(int base, int end, int index, const T* key, const T* value) {
    if (index < base || (index >= base + AT_ONCE && index != end - 1)) {
      return;
    }
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      if (min(base + 8 * half + of_lane, end - 1) == index) {
        #pragma unroll
        for (int read = 0; read < KEY_READS; read++) {
          keys[half][read] = reinterpret_cast<const uint4*>(key)[4 * read + column];
        }
      }
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        if (min(key_of_values(base, half, i), end - 1) == index) {
          #pragma unroll
          for (int read = 0; read < VALUE_READS; read++) {
            values[half][i][read] = reinterpret_cast<const uint4*>(value)[8 * read + of_lane];
          }
        }
      }
    }
  }

  __device__ __forceinline__ void begin(const T (*queries)[D]) {
    largest = -1e30f;
    total = 0;
    #pragma unroll
    for (int read = 0; read < KEY_READS; read++) {
      query[read] = make_uint4(0, 0, 0, 0);
      if (of_lane < GROUP) {
        query[read] = reinterpret_cast<const uint4*>(queries[of_lane])[4 * read + column];
      }
    }
    #pragma unroll
    for (int i = 0; i < VALUE_READS * 8 * 4; i++) {
      sums[i / 32][i / 4 % 8][i % 4] = 0;
    }
  }

  // Takes what was loaded into account, and loads what is at `next`.
  __device__ __forceinline__ void attend(const HeldKeys<T>& of, int base, int next, const Scoring& scoring) {
    // Rows are heads, columns keys; only half of the rows are in use.
    float scores[2][4];
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      #pragma unroll
      for (int i = 0; i < 4; i++) {
        scores[half][i] = 0;
      }
      #pragma unroll
      for (int read = 0; read < KEY_READS; read++) {
        const unsigned first[4] = {query[read].x, 0, query[read].y, 0};
        const unsigned second[4] = {query[read].z, 0, query[read].w, 0};
        accumulate<T>(scores[half], first, keys[half][read].x, keys[half][read].y);
        accumulate<T>(scores[half], second, keys[half][read].z, keys[half][read].w);
      }
    }
    if (next < of.end) {
      load_keys(of, next);
    }
    float highest = largest;
    float weights[2][2];
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        weights[half][i] = scoring.of(scores[half][i], key_of_values(base, half, i) < of.end);
        highest = fmaxf(highest, weights[half][i]);
      }
    }
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, 2));
    const bool is_higher = highest > largest;
    if (__any_sync(0xffffffff, is_higher)) {
      const float factor = exp2f(largest - highest);
      total *= factor;
      #pragma unroll
      for (int i = 0; i < VALUE_READS * 8 * 4; i++) {
        sums[i / 32][i / 4 % 8][i % 4] *= factor;
      }
      largest = highest;
    }
    // Rounded weights, and what rounding took.
    unsigned rounded[4];
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      float kept[2];
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        weights[half][i] = exp2f(weights[half][i] - highest);
        total += weights[half][i];
        kept[i] = static_cast<float>(static_cast<T>(weights[half][i]));
      }
      rounded[2 * half] = two_of<T>(kept[0], kept[1]);
      rounded[2 * half + 1] = two_of<T>(weights[half][0] - kept[0], weights[half][1] - kept[1]);
    }
    #pragma unroll
    for (int read = 0; read < VALUE_READS; read++) {
      auto word = [&](int half, int i, int at) {
        const uint4& pack = values[half][i][read];
        return at == 0 ? pack.x : at == 1 ? pack.y : at == 2 ? pack.z : pack.w;
      };
      #pragma unroll
      for (int j = 0; j < 8; j++) {
        const unsigned both = j % 2 == 0 ? 0x5410 : 0x7632;
        const unsigned first = __byte_perm(word(0, 0, j / 2), word(0, 1, j / 2), both);
        const unsigned second = __byte_perm(word(1, 0, j / 2), word(1, 1, j / 2), both);
        accumulate<T>(sums[read][j], rounded, first, second);
      }
    }
    if (next < of.end) {
      load_values(of, next);
    }
  }

  // The sums, the largest score and the total weight of each head that this warp saw.
  __device__ __forceinline__ void write(float (*all)[D], float* bounds, float* totals) {
    total += __shfl_xor_sync(0xffffffff, total, 1);
    total += __shfl_xor_sync(0xffffffff, total, 2);
    if (of_lane >= GROUP) {
      return;
    }
    #pragma unroll
    for (int read = 0; read < VALUE_READS; read++) {
      #pragma unroll
      for (int j = 0; j < 8; j++) {
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          all[of_lane][64 * read + 8 * (2 * column + i) + j] = sums[read][j][i] + sums[read][j][i + 2];
        }
      }
    }
    if (column == 0) {
      bounds[of_lane] = largest;
      totals[of_lane] = total;
    }
  }
};
