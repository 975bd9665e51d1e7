// A matrix product on a Linux CPU in which each row names its weights, by a kernel that is not MLX's.
#pragma once
#include "cpu_matmul.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * `out[r] = x[r / (rows / x_rows)] w[indices[r]]ᵀ` with `x` of `x_rows` rows and `w` of `matrices`
 * times `n` rows, all of `k` columns.
 */
typedef struct mlxrs_cpu_gathered {
  mlxrs_cpu_format format;
  size_t rows;
  size_t x_rows;
  size_t matrices;
  size_t n;
  size_t k;
  mlxrs_bytes x;
  /** `rows` unsigned integers of 32 bits. */
  mlxrs_bytes indices;
  mlxrs_bytes weight;
  /** Empty for dense weights. */
  mlxrs_bytes scales;
  /** Empty for weights that have none. */
  mlxrs_bytes biases;
  void* out;
  size_t out_size;
} mlxrs_cpu_gathered;

/**
 * Computes a product; called on the stream's thread. Returns 0, or 1 with a terminated text of at
 * most `capacity` bytes in `message`. It must not unwind.
 */
typedef int (*mlxrs_cpu_gather_kernel)(
    const mlxrs_cpu_gathered* product,
    char* message,
    size_t capacity);

/**
 * The product by `kernel` on the CPU stream `s`, lazily: `x` is `[…, k]`, `indices` any shape of
 * 32-bit unsigned integers, `weight` `[matrices, n, …]`, the result `[…indices, n]`. `scales` and
 * `biases` may be empty handles. That all fit each other and `format` is for the kernel to check
 * against the sizes that it gets: an error of the kernel is the error of the evaluation. Returns 0,
 * or 1 after the error handler has been called.
 */
int mlxrs_cpu_gather(
    mlx_array* res,
    const mlx_array x,
    const mlx_array indices,
    const mlx_array weight,
    const mlx_array scales,
    const mlx_array biases,
    mlxrs_cpu_format format,
    mlxrs_cpu_gather_kernel kernel,
    const mlx_stream s);

#ifdef __cplusplus
}
#endif
