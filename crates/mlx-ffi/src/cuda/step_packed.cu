// Packed keys and values of a row and a head: for each SIZE values of a head codes of BITS bits, a scale and a bias.

// The scales and the biases of keys or values.
template <typename T>
struct GradesOf {
  T* scales;
  T* biases;
};
template <typename T, int BITS, int SIZE>
struct PackedKeys {
  uint32_t* keys;
  uint32_t* values;
  GradesOf<T> of_keys;
  GradesOf<T> of_values;
  // Words from one key to the next, of keys and of values, and scales likewise.
  int64_t key_stride;
  int64_t value_stride;
  int64_t keys_apart;
  int64_t values_apart;
  int end;

  // Some values of a group, read at once.
  template <int WIDTH>
  struct Piece {
    static constexpr int WORDS = WIDTH * BITS / 32;
    struct alignas(4 * WORDS) Words {
      unsigned all[WORDS];
    };
    Words words;
    float scale;
    float bias;

    __device__ __forceinline__ void load(const uint32_t* codes, const GradesOf<T>& of, int64_t group) {
      words = *reinterpret_cast<const Words*>(codes);
      scale = static_cast<float>(of.scales[group]);
      bias = static_cast<float>(of.biases[group]) - RAISE<BITS> * scale;
    }
    __device__ __forceinline__ float value(int i) const {
      return scale * raised<BITS>(words.all + i / 8 * (BITS / 4), i % 8) + bias;
    }
  };
  template <int WIDTH>
  __device__ __forceinline__ void load_key(int64_t key, int at, Piece<WIDTH>& to) const {
    to.load(keys + key * key_stride + at * BITS / 32, of_keys, key * keys_apart + at / SIZE);
  }
  template <int WIDTH>
  __device__ __forceinline__ void load_value(int64_t key, int at, Piece<WIDTH>& to) const {
    to.load(values + key * value_stride + at * BITS / 32, of_values, key * values_apart + at / SIZE);
  }
};

// Packs a group of a head as MLX packs weights on GPUs: from the lowest value to the highest one, or to zero where that is higher. By one
// warp. `seen` takes each value with its place, as it is unpacked.
template <typename T, int D, int BITS, int SIZE, typename Seen>
__device__ __forceinline__ void pack_group(
    const T (&own)[SIZE / 32], int group, uint32_t* codes, T* scales, T* biases, Seen seen) {
  constexpr float MOST = (1 << BITS) - 1;
  const int lane = threadIdx.x % 32;
  float lowest = 1e38f;
  float highest = 0.0f;
  #pragma unroll
  for (int i = 0; i < SIZE / 32; i++) {
    lowest = fminf(lowest, static_cast<float>(own[i]));
    highest = fmaxf(highest, static_cast<float>(own[i]));
  }
  #pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    lowest = fminf(lowest, __shfl_xor_sync(0xffffffff, lowest, offset));
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, offset));
  }
  const bool from_lowest = fabsf(lowest) > fabsf(highest);
  const float edge = from_lowest ? lowest : highest;
  const float step = fmaxf((highest - lowest) / MOST, 1e-7f) * (from_lowest ? 1.0f : -1.0f);
  // Zero has a code, where there is room for it.
  const float steps = roundf(edge / step);
  const float scale = steps == 0.0f ? step : edge / steps;
  const float bias = steps == 0.0f ? 0.0f : edge;
  const T held_scale = static_cast<T>(scale);
  const T held_bias = static_cast<T>(bias);
  if (lane == 0) {
    scales[group] = held_scale;
    biases[group] = held_bias;
  }
  #pragma unroll
  for (int i = 0; i < SIZE / 32; i++) {
    const float steps_of_value = roundf((static_cast<float>(own[i]) - bias) / scale);
    const unsigned code = static_cast<unsigned>(fminf(fmaxf(steps_of_value, 0.0f), MOST));
    const int at = group * SIZE + i * 32 + lane;
    if constexpr (BITS == 8) {
      reinterpret_cast<unsigned char*>(codes)[at] = code;
    } else {
      const unsigned next = __shfl_xor_sync(0xffffffff, code, 1);
      if (lane % 2 == 0) {
        reinterpret_cast<unsigned char*>(codes)[at / 2] = code | next << 4;
      }
    }
    seen(at, static_cast<T>(static_cast<float>(held_scale) * code + static_cast<float>(held_bias)));
  }
}

// A new key and its value, which a block packs.
template <typename T, int D, int BITS, int SIZE>
struct NewPacked {
  static constexpr int WORDS = D * BITS / 32;
  static constexpr int GROUPS = D / SIZE;
  alignas(16) uint32_t codes[2][WORDS];
  T scales[2][GROUPS];
  T biases[2][GROUPS];

  __device__ __forceinline__ PackedKeys<T, BITS, SIZE> held() {
    return {codes[0], codes[1], {scales[0], biases[0]}, {scales[1], biases[1]}, 0, 0, 0, 0, 1};
  }

  // A group of the key, 0, or of the value, 1. By one warp.
  __device__ __forceinline__ void pack(int part, int group, const T* head) {
    T own[SIZE / 32];
    #pragma unroll
    for (int i = 0; i < SIZE / 32; i++) {
      own[i] = head[group * SIZE + i * 32 + threadIdx.x % 32];
    }
    pack_group<T, D, BITS, SIZE>(own, group, codes[part], scales[part], biases[part], [](int, T) {});
  }

  // Both, behind the earlier ones. By a block.
  __device__ __forceinline__ void write(const PackedKeys<T, BITS, SIZE>& to, int64_t index) const {
    for (int i = threadIdx.x; i < WORDS; i += blockDim.x) {
      to.keys[index * to.key_stride + i] = codes[0][i];
      to.values[index * to.value_stride + i] = codes[1][i];
    }
    for (int i = threadIdx.x; i < GROUPS; i += blockDim.x) {
      to.of_keys.scales[index * to.keys_apart + i] = scales[0][i];
      to.of_keys.biases[index * to.keys_apart + i] = biases[0][i];
      to.of_values.scales[index * to.values_apart + i] = scales[1][i];
      to.of_values.biases[index * to.values_apart + i] = biases[1][i];
    }
  }
};
