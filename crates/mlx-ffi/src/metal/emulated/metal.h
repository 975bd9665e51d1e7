// What kernels take of Metal, for one that runs on a processor: `run.cpp` runs it.
#pragma once
#include "threads.h"

using uint = unsigned;
using ushort = unsigned short;

struct uint3 {
  uint x, y, z;
};

// The values that a thread may ask for.
namespace emulated {
inline uint3 threads_per_threadgroup() {
  return {blockDim.x, blockDim.y, blockDim.z};
}
inline uint3 thread_position_in_threadgroup() {
  return {threadIdx.x, threadIdx.y, threadIdx.z};
}
inline uint3 threadgroup_position_in_grid() {
  return {blockIdx.x, blockIdx.y, blockIdx.z};
}
inline uint3 thread_position_in_grid() {
  return {blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y,
          blockIdx.z * blockDim.z + threadIdx.z};
}
inline uint thread_index_in_threadgroup() {
  return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}
inline uint thread_index_in_simdgroup() {
  return current->lane;
}
inline uint simdgroup_index_in_threadgroup() {
  return thread_index_in_threadgroup() / LANES_OF_WARP;
}
} // namespace emulated

template <typename To, typename From>
To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

struct bfloat16_t {
  uint16_t bits;
  bfloat16_t() = default;
  explicit bfloat16_t(float value) {
    auto all = as_type<uint>(value);
    bits = value != value ? 0x7fff : static_cast<uint16_t>((all + 0x7fff + (all >> 16 & 1)) >> 16);
  }
  explicit operator float() const {
    return as_type<float>(static_cast<uint>(bits) << 16);
  }
};
struct float16_t {
  _Float16 value;
  float16_t() = default;
  explicit float16_t(float value) : value(static_cast<_Float16>(value)) {}
  explicit operator float() const {
    return value;
  }
};

struct alignas(16) float4 {
  float of[4];
  float4() = default;
  float4(float all) : of{all, all, all, all} {}
  float& operator[](int i) {
    return of[i];
  }
  float operator[](int i) const {
    return of[i];
  }
  float4& operator*=(float4 by) {
    for (int i = 0; i < 4; i++) {
      of[i] *= by[i];
    }
    return *this;
  }
};
inline float4 operator*(float4 a, float4 b) {
  return a *= b;
}
inline float4 operator+(float4 a, float4 b) {
  for (int i = 0; i < 4; i++) {
    a[i] += b[i];
  }
  return a;
}

namespace metal {
enum class mem_flags { mem_none, mem_device, mem_threadgroup };

inline void threadgroup_barrier(mem_flags) {
  __syncthreads();
}
inline float simd_shuffle_xor(float own, ushort by) {
  int lane = current->lane ^ by;
  return of_lane<float>(exchange(SHUFFLE, own), lane);
}
inline float simd_sum(float own) {
  auto values = exchange(SHUFFLE, own);
  float sum = 0;
  for (int lane = 0; lane < LANES_OF_WARP; lane++) {
    sum += of_lane<float>(values, lane);
  }
  return sum;
}

template <typename A>
A min(A a, A b) {
  return b < a ? b : a;
}
template <typename A>
A max(A a, A b) {
  return a < b ? b : a;
}
template <typename A>
A clamp(A x, A least, A most) {
  return min(max(x, least), most);
}
inline float dot(float4 a, float4 b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
}
namespace precise {
inline float exp(float x) {
  return expf(x);
}
inline float log(float x) {
  return logf(x);
}
inline float tanh(float x) {
  return tanhf(x);
}
inline float rsqrt(float x) {
  return 1.0f / sqrtf(x);
}
} // namespace precise
} // namespace metal

// Metal's address spaces. Threads of a block share what lies in `threadgroup`.
#define device
#define constant
#define threadgroup static
