// What a kernel that runs on a processor knows of its thread, and how threads meet: `run.cpp` runs it.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct dim3 {
  unsigned x, y, z;
};

// The part of a thread that kernels see.
struct Seen {
  dim3 index;
  int lane;
};

extern Seen* current;
extern dim3 blockIdx, blockDim, gridDim;
// The launches that have begun.
extern unsigned launches;
#define threadIdx (current->index)

[[noreturn]] void fail(const char* why);

// Ends once all threads of the block that have not ended have come.
void __syncthreads();

// What lanes of a warp meet for.
enum Meeting { SHUFFLE, VOTE, WARP, MATRIX, PRODUCT, TURN };

constexpr int LANES_OF_WARP = 32;
constexpr size_t MOST_BROUGHT = 64;

// What all lanes of the warp bring, MOST_BROUGHT bytes each. Ends once all have come.
const void* exchange(Meeting kind, const void* own, size_t bytes);

template <typename V>
const void* exchange(Meeting kind, const V& own) {
  static_assert(sizeof(V) <= MOST_BROUGHT);
  return exchange(kind, &own, sizeof(V));
}
template <typename V>
const V& of_lane(const void* values, int lane) {
  return *reinterpret_cast<const V*>(static_cast<const unsigned char*>(values) + lane * MOST_BROUGHT);
}

template <typename I>
struct Ten {
  I of[10];
  I operator[](int i) const {
    return of[i];
  }
};

struct Input {
  Ten<int32_t> shape;
  Ten<int64_t> strides;
  int dims;
  unsigned char* data;
  uint64_t bytes;
};

// What the text of each kernel ends with: a thread of it, and which inputs it writes into.
void run_thread(Input* inputs, unsigned char** outputs);
extern const int OF_INPUTS, OF_OUTPUTS, OF_WRITTEN;
extern const int WRITTEN[];
// The last block of a dimension ends where the grid does.
extern const bool HAS_PARTIAL_BLOCKS;
