// Letting an array go from the graph that computed it.
#pragma once
#include "mlx/c/array.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Takes the operation and its inputs from `a`, which was evaluated or sent to its device.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_array_detach(const mlx_array a);

#ifdef __cplusplus
}
#endif
