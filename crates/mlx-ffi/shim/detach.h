// What mlx-c lacks: a call that cuts an array loose from the graph that made it.
#pragma once
#include "mlx/c/array.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Drops the inputs of an evaluated array, so that only its own data stays alive.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_array_detach(mlx_array arr);

#ifdef __cplusplus
}
#endif
