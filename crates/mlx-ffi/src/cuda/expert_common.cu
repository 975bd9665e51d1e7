// What products with the matrices of experts share: how a weight is held, where its row is, and the gate.

// A weight as it is has 16 bits. Packed weights are AFFINE codes, or FLOATS of four bits, whose scales are powers
// of two or, of groups of 16, floats of eight bits.
template <int BITS>
constexpr int AT_ONCE = BITS == 16 ? 8 : 128 / BITS;
// The row of an expert's matrix; `of` is 0 for the gate and 1 for what it lets through.
template <int LAYOUT, int ROWS>
__device__ __forceinline__ int64_t row_of(int expert, int row, int of) {
  constexpr int64_t ALL = LAYOUT == SEPARATE || LAYOUT == SAME ? ROWS : 2 * ROWS;
  return expert * ALL + (LAYOUT == INTERLEAVED ? 2 * row + of : LAYOUT == HALVES ? of * ROWS + row : row);
}
// Scales of FLOATS.
__device__ __forceinline__ float scale_of_32(unsigned char code) {
  return __uint_as_float(code == 0 ? 0x400000u : static_cast<unsigned>(code) << 23);
}
__device__ __forceinline__ float scale_of_16(unsigned char code) {
  const unsigned magnitude = code & 0x7f;
  const float value = magnitude < 8 ? magnitude * 0.001953125f
                                    : __uint_as_float((magnitude << 20) + (120u << 23));
  return code & 0x80 ? -value : value;
}
template <typename T, int KIND, int GROUP_SIZE>
__device__ __forceinline__ float scale_at(const void* scales, int64_t at) {
  if constexpr (KIND == FLOATS) {
    const unsigned char code = static_cast<const unsigned char*>(scales)[at];
    return GROUP_SIZE == 16 ? scale_of_16(code) : scale_of_32(code);
  } else {
    return static_cast<float>(static_cast<const T*>(scales)[at]);
  }
}
// What FLOATS are multiplied with after `floats_of`.
constexpr float RAISED_FLOATS = 16384.0f;
// Codes i and i + 4 of a word of eight floats of four bits, divided by RAISED_FLOATS.
__device__ __forceinline__ float2 floats_of(unsigned word, int i) {
  const unsigned moved = word >> (4 * i);
  const unsigned bits = (moved & 0x00080008) << 12 | (moved & 0x00070007) << 9;
  return __half22float2(*reinterpret_cast<const __half2*>(&bits));
}
// Eight weights of one group: of AFFINE codes `BITS / 4` words, of FLOATS one.
template <typename T, int KIND, int BITS>
__device__ __forceinline__ void unpack_8(const unsigned* codes, float scale, float minimum, T* made) {
  if constexpr (KIND == AFFINE) {
    const float added = minimum - RAISE<BITS> * scale;
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      made[i] = static_cast<T>(scale * raised<BITS>(codes, i) + added);
    }
  } else if constexpr (KIND == FLOATS) {
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const float2 pair = floats_of(codes[0], i);
      made[i] = static_cast<T>(pair.x * RAISED_FLOATS * scale);
      made[i + 4] = static_cast<T>(pair.y * RAISED_FLOATS * scale);
    }
  }
}
// Sixteen of them.
template <typename T, int KIND, int BITS>
__device__ __forceinline__ void unpack_16(const unsigned* codes, float scale, float minimum, T* made) {
  unpack_8<T, KIND, BITS>(codes, scale, minimum, made);
  unpack_8<T, KIND, BITS>(codes + BITS / 4, scale, minimum, made + 8);
}
// Eight codes of so many bits.
template <int BITS>
__device__ __forceinline__ void load_8(const void* from, unsigned* codes) {
  if constexpr (BITS == 4) {
    codes[0] = *static_cast<const unsigned*>(from);
  } else if constexpr (BITS == 8) {
    const uint2 pack = *static_cast<const uint2*>(from);
    codes[0] = pack.x;
    codes[1] = pack.y;
  }
}
// Sixteen codes of so many bits.
template <int BITS>
__device__ __forceinline__ void load_16(const void* from, unsigned* codes) {
  if constexpr (BITS == 4) {
    const uint2 pack = *static_cast<const uint2*>(from);
    codes[0] = pack.x;
    codes[1] = pack.y;
  } else if constexpr (BITS == 8) {
    const uint4 pack = *static_cast<const uint4*>(from);
    codes[0] = pack.x;
    codes[1] = pack.y;
    codes[2] = pack.z;
    codes[3] = pack.w;
  }
}
// What passes the gate.
template <int GATE, typename T>
__device__ __forceinline__ T passed(float gate, float up, const float* limits) {
  if constexpr (GATE == CLIPPED) {
    const float g = fminf(gate, limits[1]);
    const float u = fminf(fmaxf(up, -limits[1]), limits[1]);
    return static_cast<T>(g / (1.0f + expf(-limits[0] * g)) * (u + 1.0f));
  } else {
    return gated<GATE>(static_cast<T>(gate), static_cast<T>(up));
  }
}
