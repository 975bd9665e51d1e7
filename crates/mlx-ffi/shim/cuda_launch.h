// What mlx-c lacks: a kernel of one's own that is launched again without its text being put together
// anew, and that may write into its inputs.
#pragma once
#include "mlx/c/array.h"
#include "mlx/c/vector.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A kernel with its grid and the shapes and types of its outputs. */
typedef struct mlxrs_launch_ {
  void* ctx;
} mlxrs_launch;

/**
 * The launch that `outputs` are of, all outputs of one call of mlx_fast_cuda_kernel_apply. `written`
 * are the `count` inputs that the kernel writes into.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_launch_new(
    mlxrs_launch* res,
    const mlx_vector_array outputs,
    const int* written,
    size_t count);

/**
 * The launch that `outputs` are of, all outputs of one call of mlx_fast_metal_kernel_apply.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_launch_of(mlxrs_launch* res, const mlx_vector_array outputs);

/**
 * The same launch over other inputs of the same types: the outputs, then each written input as it is
 * afterwards. That one shares the buffer of the input, which must not be read where it is written.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_launch_apply(
    mlx_vector_array* res,
    const mlxrs_launch launch,
    const mlx_vector_array inputs);

void mlxrs_launch_free(mlxrs_launch launch);

#ifdef __cplusplus
}
#endif
