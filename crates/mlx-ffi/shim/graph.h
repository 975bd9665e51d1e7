// What mlx-c lacks: the operations that an evaluation is still to run.
#pragma once
#include "mlx/c/string.h"
#include "mlx/c/vector.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The names of the operations that the values of `arrays` still wait for, each once, a line each.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_operations(mlx_string* res, const mlx_vector_array arrays);

#ifdef __cplusplus
}
#endif
