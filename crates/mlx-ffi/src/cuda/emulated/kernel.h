// What kernels take of CUDA, for one that runs on a processor: `run.cpp` runs it.
#pragma once
#include "threads.h"

#define __device__
#define __forceinline__ inline
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static

inline void __syncwarp() {
  exchange(WARP, 0);
}
template <typename V>
V __shfl_sync(unsigned, V value, int lane) {
  return of_lane<V>(exchange(SHUFFLE, value), lane & 31);
}
template <typename V>
V __shfl_xor_sync(unsigned, V value, int by) {
  int lane = current->lane ^ by;
  return of_lane<V>(exchange(SHUFFLE, value), lane);
}
inline unsigned __ballot_sync(unsigned, bool own) {
  auto values = exchange(VOTE, own);
  unsigned all = 0;
  for (int lane = 0; lane < LANES_OF_WARP; lane++) {
    all |= static_cast<unsigned>(of_lane<bool>(values, lane)) << lane;
  }
  return all;
}
inline bool __any_sync(unsigned mask, bool own) {
  return __ballot_sync(mask, own) != 0;
}
inline unsigned __reduce_max_sync(unsigned, unsigned own) {
  auto values = exchange(VOTE, own);
  for (int lane = 0; lane < LANES_OF_WARP; lane++) {
    auto other = of_lane<unsigned>(values, lane);
    own = other > own ? other : own;
  }
  return own;
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned own) {
  return ~__reduce_max_sync(mask, ~own);
}
inline void __threadfence() {}
template <typename V>
V atomicAdd(V* to, V value) {
  V before = *to;
  *to += value;
  return before;
}

struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
inline int4 make_int4(int x, int y, int z, int w) {
  return {x, y, z, w};
}

template <typename A, typename B>
constexpr auto min(A a, B b) {
  using Both = decltype(true ? a : b);
  return static_cast<Both>(b) < static_cast<Both>(a) ? static_cast<Both>(b) : static_cast<Both>(a);
}
template <typename A, typename B>
constexpr auto max(A a, B b) {
  using Both = decltype(true ? a : b);
  return static_cast<Both>(a) < static_cast<Both>(b) ? static_cast<Both>(b) : static_cast<Both>(a);
}
template <typename To, typename From>
To same_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}
inline float __int_as_float(int bits) {
  return same_bits<float>(bits);
}
inline float __uint_as_float(unsigned bits) {
  return same_bits<float>(bits);
}
inline unsigned __float_as_uint(float value) {
  return same_bits<unsigned>(value);
}
inline float __uint2float_rn(unsigned value) {
  return static_cast<float>(value);
}
inline float rsqrtf(float x) {
  return 1.0f / sqrtf(x);
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned which) {
  uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  unsigned found = 0;
  for (int i = 0; i < 4; i++) {
    found |= static_cast<unsigned>(both >> (which >> (4 * i) & 7) * 8 & 255) << 8 * i;
  }
  return found;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both << (by & 31) >> 32);
}
template <typename V>
V __ldcg(const V* from) {
  return *from;
}
template <typename V>
V __ldcs(const V* from) {
  return *from;
}

struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float value) {
    auto all = __float_as_uint(value);
    bits = value != value ? 0x7fff : static_cast<uint16_t>((all + 0x7fff + (all >> 16 & 1)) >> 16);
  }
  operator float() const {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
  }
};
struct __half {
  _Float16 value;
  __half() = default;
  __half(float value) : value(static_cast<_Float16>(value)) {}
  operator float() const {
    return value;
  }
};
template <typename T>
struct alignas(4) Two {
  T x, y;
  Two() = default;
  Two(T x, T y) : x(x), y(y) {}
};
using __nv_bfloat162 = Two<__nv_bfloat16>;
using __half2 = Two<__half>;
inline float2 __half22float2(__half2 both) {
  return {both.x, both.y};
}
template <typename T>
Two<T> __hsub2(Two<T> a, Two<T> b) {
  return {T(float(a.x) - float(b.x)), T(float(a.y) - float(b.y))};
}
template <typename T>
Two<T> __hmul2(Two<T> a, Two<T> b) {
  return {T(float(a.x) * float(b.x)), T(float(a.y) * float(b.y))};
}
template <typename T>
Two<T> __hfma2(Two<T> a, Two<T> b, Two<T> c) {
  return {T(fmaf(a.x, b.x, c.x)), T(fmaf(a.y, b.y, c.y))};
}

// What `chained.cu` and `tensor.cu` have instructions for.
inline void let_next_begin() {}
inline void wait_for_last() {}

struct Fragments {
  unsigned a[4], b[2];
};

// sums += a b for a of 16 × 16 and b of 16 × 8. A lane has two values side by side of rows lane / 4 and eight further,
// columns from 2 (lane mod 4) on and eight further; of b so of columns.
template <typename T>
void accumulate(float* sums, const unsigned* a, unsigned b0, unsigned b1) {
  auto values = exchange(PRODUCT, Fragments{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  auto half = [](unsigned word, int at) { return float(same_bits<T>(static_cast<uint16_t>(word >> 16 * at))); };
  int lane = current->lane;
  for (int i = 0; i < 4; i++) {
    int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    float sum = 0;
    for (int k = 0; k < 16; k++) {
      auto& of_a = of_lane<Fragments>(values, row % 8 * 4 + k % 8 / 2);
      auto& of_b = of_lane<Fragments>(values, column * 4 + k % 8 / 2);
      sum += half(of_a.a[row / 8 + k / 8 * 2], k % 2) * half(of_b.b[k / 8], k % 2);
    }
    sums[i] += sum;
  }
}
// What `warpgroup.cu` has instructions for.
// Kernels in bf16 take them. Those in f16 are computed as where there are none.
template <typename T>
constexpr bool HAS_WARPGROUPS = true;
template <>
constexpr bool HAS_WARPGROUPS<__half> = false;
struct SharedTile {
  const unsigned char* at;
  int by_panel, bytes;
};
inline SharedTile tile_at(const void* at, int by_panel) {
  return {static_cast<const unsigned char*>(at), by_panel, 0};
}
inline SharedTile moved(SharedTile tile, int bytes) {
  return {tile.at, tile.by_panel, tile.bytes + bytes};
}
inline void begin_warpgroup() {}
inline void commit_warpgroup() {}
template <int COUNT>
void wait_for_warpgroup(float*) {}
inline void show_to_warpgroups() {}
// An element of a tile, `row` rows and `column` columns behind where it begins.
template <typename T>
float element(SharedTile tile, int row, int column) {
  int place = tile.bytes + row * 128 + column / 64 * tile.by_panel + column % 64 * 2;
  T value;
  memcpy(&value, tile.at + (place ^ (place >> 7 & 7) << 4), sizeof value);
  return value;
}
template <typename T>
void multiply_tiles(float* sums, SharedTile a, SharedTile b, bool adds) {
  int lane = current->lane;
  for (int i = 0; i < 32; i++) {
    int row = threadIdx.x / 32 * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    float sum = adds ? sums[i] : 0;
    for (int k = 0; k < 16; k++) {
      sum += element<T>(a, row, k) * element<T>(b, column, k);
    }
    sums[i] = sum;
  }
}
template <typename T, int N>
void multiply_rows(float* sums, const unsigned* a, SharedTile b) {
  auto values = exchange(PRODUCT, Fragments{{a[0], a[1], a[2], a[3]}, {0, 0}});
  int lane = current->lane;
  for (int i = 0; i < N / 2; i++) {
    int row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; k++) {
      unsigned word = of_lane<Fragments>(values, row % 8 * 4 + k % 8 / 2).a[row / 8 + k / 8 * 2];
      sums[i] += float(same_bits<T>(static_cast<uint16_t>(word >> 16 * (k % 2)))) * element<T>(b, k, column);
    }
  }
}
// Four matrices of 8 × 8, whose rows the lanes name. Lanes get rows, or columns.
void load_matrices(unsigned* to, const void* row);
void load_transposed(unsigned* to, const void* row);
// Of a matrix of which each lane has two values of a row, two of a column.
unsigned transposed(unsigned of_row);
// A copy, which nobody sees before it was waited for.
void copy_bytes_ahead(void* to, const void* from, size_t bytes, bool is_there);
inline void copy_ahead(void* to, const void* from, bool is_there) {
  copy_bytes_ahead(to, from, 16, is_there);
}
template <int BYTES>
void copy_few_ahead(void* to, const void* from) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
  copy_bytes_ahead(to, from, BYTES, true);
}
template <typename T>
constexpr bool IS_HALF = false;
template <>
constexpr bool IS_HALF<__half> = true;
using Shared = unsigned char*;
// Each block finds other bytes than it wrote, and what lies behind stays as it was.
template <int BYTES>
Shared memory_of() {
  constexpr int BEHIND = 64;
  constexpr unsigned char UNTOUCHED = 0xa5;
  alignas(16) static unsigned char memory[BYTES + BEHIND];
  static dim3 last{~0u, ~0u, ~0u};
  static unsigned launch = 0;
  if (launch != launches || last.x != blockIdx.x || last.y != blockIdx.y || last.z != blockIdx.z) {
    for (int i = 0; last.x != ~0u && i < BEHIND; i++) {
      if (memory[BYTES + i] != UNTOUCHED) {
        fail("a block wrote behind the shared memory of the launch");
      }
    }
    memset(memory, 0xff, BYTES);
    memset(memory + BYTES, UNTOUCHED, BEHIND);
    last = blockIdx;
    launch = launches;
  }
  return memory;
}
#define memory_of_launch() memory_of<MEMORY>()
template <int BYTES>
void copy_to(Shared to, const void* from, bool is_there) {
  copy_bytes_ahead(to, from, BYTES, is_there);
}
inline void copy_two_to(Shared to, const void* from, int there) {
  copy_bytes_ahead(to, from, 2, there > 0);
  copy_bytes_ahead(to + 2, static_cast<const char*>(from) + 2, 2, there > 1);
}
inline void copy_word_to(Shared to, const void* from, int there) {
  for (int i = 0; i < 4; i++) {
    copy_bytes_ahead(to + i, static_cast<const char*>(from) + i, 1, there > i);
  }
}
template <typename V>
V read_at(Shared at) {
  if (reinterpret_cast<uintptr_t>(at) % sizeof(V) != 0) {
    fail("a value does not begin at a multiple of its bytes");
  }
  V found;
  memcpy(&found, at, sizeof(V));
  return found;
}
template <typename V>
void put_at(Shared at, V value) {
  read_at<V>(at);
  memcpy(at, &value, sizeof(V));
}
inline uint4 four_at(Shared at) {
  return read_at<uint4>(at);
}
inline float float_at(Shared at) {
  return read_at<float>(at);
}
template <typename T>
using Pair = Two<T>;
template <typename T>
Two<T> twice_at(Shared at) {
  T value = read_at<T>(at);
  return {value, value};
}
template <typename T>
float half_at(Shared at) {
  return read_at<T>(at);
}
inline unsigned char byte_at(Shared at) {
  return read_at<unsigned char>(at);
}
template <int BYTES>
void words_at(Shared at, unsigned* to) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
  memcpy(to, at, BYTES);
}
constexpr unsigned FIRST_VALUE = 0;
constexpr unsigned SECOND_VALUE = 1;
template <typename T>
float value_of(unsigned word, unsigned which) {
  return same_bits<T>(static_cast<uint16_t>(word >> 16 * which));
}
void end_copies();
// Waits for all but so many groups of copies.
void wait_for_all_copies_but(size_t groups);
template <int GROUPS = 1>
void wait_for_copies() {
  wait_for_all_copies_but(GROUPS);
}
inline float power_of_two(float x) {
  return exp2f(x);
}
template <typename T>
unsigned two_of(float first, float second) {
  return same_bits<unsigned>(Two<T>(static_cast<T>(first), static_cast<T>(second)));
}

// As kernels write it, behind `__shared__`.
#define alignas(bytes) __attribute__((aligned(bytes)))
