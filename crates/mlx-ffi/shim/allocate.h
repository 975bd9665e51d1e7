// What mlx-c lacks: an array whose memory is filled by its owner, without a copy.
#pragma once
#include "mlx/c/array.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes an array of `dtype` and `shape` in MLX's own memory, with nothing written there yet, and
 * tells where that is. Nothing may read the array before all of it was written. Where MLX has no
 * GPU, it begins at a line of the cache, and lies in large pages if the system has them.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_array_allocate(
    mlx_array* res,
    void** data,
    const int* shape,
    size_t dim,
    mlx_dtype dtype);

#ifdef __cplusplus
}
#endif
