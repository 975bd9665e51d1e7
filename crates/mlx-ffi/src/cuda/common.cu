// Two values of a word.
template <typename T>
__device__ __forceinline__ float2 unpack(unsigned word);
template <>
__device__ __forceinline__ float2 unpack<__nv_bfloat16>(unsigned word) {
  return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000));
}
template <>
__device__ __forceinline__ float2 unpack<__half>(unsigned word) {
  return __half22float2(*reinterpret_cast<const __half2*>(&word));
}
template <bool FIRST, typename A, typename B>
struct Either {
  using Type = A;
};
template <typename A, typename B>
struct Either<false, A, B> {
  using Type = B;
};
// Reads what is read once only.
template <typename P>
__device__ __forceinline__ void stream_in(const P* from, P& to) {
  if constexpr (sizeof(P) == 16) {
    *reinterpret_cast<uint4*>(&to) = __ldcs(reinterpret_cast<const uint4*>(from));
  } else if constexpr (sizeof(P) == 8) {
    *reinterpret_cast<uint2*>(&to) = __ldcs(reinterpret_cast<const uint2*>(from));
  } else {
    *reinterpret_cast<unsigned*>(&to) = __ldcs(reinterpret_cast<const unsigned*>(from));
  }
}
// What all threads of a block of COUNT warps have, added up; `totals` has room for one of each warp.
template <int COUNT>
__device__ __forceinline__ float sum_of_block(float own, float* totals) {
  #pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    own += __shfl_xor_sync(0xffffffff, own, offset);
  }
  if (threadIdx.x % 32 == 0) {
    totals[threadIdx.x / 32] = own;
  }
  __syncthreads();
  own = 0;
  #pragma unroll
  for (int i = 0; i < COUNT; i++) {
    own += totals[i];
  }
  return own;
}
// A value of a norm: times the factor of its row, and then times its weight, each rounded.
template <typename T>
__device__ __forceinline__ T scaled_value(T value, float factor, T by) {
  const T even = static_cast<T>(static_cast<float>(value) * factor);
  return static_cast<T>(static_cast<float>(even) * static_cast<float>(by));
}
// Code i of packed weights and RAISE as a float, which takes few instructions.
template <int BITS>
constexpr float RAISE = BITS == 4 ? 128.0f : 0.0f;
template <int BITS>
__device__ __forceinline__ float raised(const unsigned* words, int i) {
  if constexpr (BITS == 4) {
    // Of both nibbles of a byte, the compiler makes these words once for all.
    const unsigned codes = words[0] >> (i % 2 * 4) & 0x0f0f0f0f;
    return __uint_as_float(__byte_perm(codes, 0x43000000, 0x7044 | i / 2 << 8));
  } else {
    return __uint_as_float(__byte_perm(words[i / 4], 0x4b000000, 0x7540 | i % 4)) - 8388608.0f;
  }
}
// Codes i and j of eight bits as two numbers of bf16: all of their bits fit.
__device__ __forceinline__ unsigned two_codes(const unsigned* words, int i, int j) {
  return __byte_perm(__float_as_uint(raised<8>(words, i)), __float_as_uint(raised<8>(words, j)), 0x7632);
}
// Eight values of x, placed as the weights of their columns are once they are unpacked.
template <int BITS>
__device__ __forceinline__ void place_as_unpacked(const uint4& eight, unsigned* to) {
  if constexpr (BITS == 4) {
    to[0] = __byte_perm(eight.x, eight.z, 0x5410);
    to[1] = __byte_perm(eight.x, eight.z, 0x7632);
    to[2] = __byte_perm(eight.y, eight.w, 0x5410);
    to[3] = __byte_perm(eight.y, eight.w, 0x7632);
  } else if constexpr (BITS == 8) {
    to[0] = __byte_perm(eight.x, eight.y, 0x5410);
    to[1] = __byte_perm(eight.x, eight.y, 0x7632);
    to[2] = __byte_perm(eight.z, eight.w, 0x5410);
    to[3] = __byte_perm(eight.z, eight.w, 0x7632);
  } else {
    to[0] = eight.x;
    to[1] = eight.y;
    to[2] = eight.z;
    to[3] = eight.w;
  }
}
// The sum of PARTS floats, of four places side by side, in their order.
template <int PARTS>
__device__ __forceinline__ float4 sum_of_parts(const float* from, int64_t apart) {
  float4 sum = *reinterpret_cast<const float4*>(from);
  #pragma unroll
  for (int i = 1; i < PARTS; i++) {
    const float4 more = *reinterpret_cast<const float4*>(from + i * apart);
    sum.x += more.x;
    sum.y += more.y;
    sum.z += more.z;
    sum.w += more.w;
  }
  return sum;
}
// The activation of `gate` times `up`: SILU, GELU_TANH, GELU, RELU, SIGMOID, SOFTPLUS or IDENTITY.
template <int GATE, typename T>
__device__ __forceinline__ T gated(T gate, T up) {
  const float g = static_cast<float>(gate);
  T open;
  if constexpr (GATE == SILU) {
    const T sigmoid = static_cast<T>(1.0f / (1.0f + expf(-g)));
    open = static_cast<T>(g * static_cast<float>(sigmoid));
  } else if constexpr (GATE == RELU) {
    open = g < 0.0f ? static_cast<T>(0.0f) : gate;
  } else if constexpr (GATE == SIGMOID) {
    open = static_cast<T>(1.0f / (1.0f + expf(-g)));
  } else if constexpr (GATE == SOFTPLUS) {
    open = static_cast<T>(g > 20.0f ? g : log1pf(expf(g)));
  } else if constexpr (GATE == IDENTITY) {
    open = gate;
  } else if constexpr (GATE == GELU) {
    open = static_cast<T>(0.5f * g * (1.0f + erff(0.7071067812f * g)));
  } else {
    open = static_cast<T>(0.5f * g * (1.0f + tanhf(0.7978845608f * (g + GELU_CUBE * g * g * g))));
  }
  return static_cast<T>(static_cast<float>(open) * static_cast<float>(up));
}
