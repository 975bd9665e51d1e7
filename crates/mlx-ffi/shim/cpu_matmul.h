// What MLX lacks on a Linux CPU: a matrix product by a kernel that is not its own.
#pragma once
#include "mlx/c/array.h"
#include "mlx/c/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How a product's operands are represented. Handed on to the kernel as it is. */
typedef struct mlxrs_cpu_format {
  /** Of the activations and of the result. */
  mlx_dtype dtype;
  /** Of dense weights and of the scales and biases of packed ones. */
  mlx_dtype weight_dtype;
  /** 0: dense; above: packed, numbered by the kernel. */
  int packing;
  int bits;
  int group_size;
} mlxrs_cpu_format;

/** Row-major elements, `size` bytes of them. */
typedef struct mlxrs_bytes {
  const void* data;
  size_t size;
} mlxrs_bytes;

/** `out = x wᵀ` with `x` of `m` rows and `w` of `n`, all of `k` columns. */
typedef struct mlxrs_cpu_product {
  mlxrs_cpu_format format;
  size_t m;
  size_t n;
  size_t k;
  mlxrs_bytes x;
  mlxrs_bytes weight;
  /** Empty for dense weights. */
  mlxrs_bytes scales;
  /** Empty for weights that have none. */
  mlxrs_bytes biases;
  void* out;
  size_t out_size;
} mlxrs_cpu_product;

/**
 * Computes a product; called on the stream's thread. Returns 0, or 1 with a terminated text of at
 * most `capacity` bytes in `message`. It must not unwind.
 */
typedef int (*mlxrs_cpu_kernel)(
    const mlxrs_cpu_product* product,
    char* message,
    size_t capacity);

/**
 * `x wᵀ` by `kernel` on the CPU stream `s`, lazily: `x` is `[…, k]`, `weight` has `n` rows, the
 * result is `[…, n]`. `scales` and `biases` may be empty handles. That the weights fit `format`
 * and `k` is for the kernel to check against the sizes that it gets: an error of the kernel is the
 * error of the evaluation. Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_cpu_matmul(
    mlx_array* res,
    const mlx_array x,
    const mlx_array weight,
    const mlx_array scales,
    const mlx_array biases,
    mlxrs_cpu_format format,
    mlxrs_cpu_kernel kernel,
    const mlx_stream s);

#ifdef __cplusplus
}
#endif
