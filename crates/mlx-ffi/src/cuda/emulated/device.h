// What kernels find on a device, for NVIDIA's compiler alone.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long uintptr_t;

template <typename V>
struct Ten {
  V all[10];
  __device__ V operator[](int at) const {
    return all[at];
  }
};
