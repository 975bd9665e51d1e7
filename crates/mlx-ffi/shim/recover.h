// What mlx-c lacks: a stream of a GPU that can be used again after something failed on it.
#pragma once
#include "mlx/c/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Drops what was prepared for `stream`, of this thread, and never sent, waits for what was sent, gives
 * unused memory back and sees that an operation succeeds. Arrays of evaluations that have failed stay
 * without values.
 * Returns 0, or 1 after the error handler has been called: then the thread must not use the stream any
 * more, and must not end, since MLX would use it then.
 */
int mlxrs_recover(const mlx_stream stream);

#ifdef __cplusplus
}
#endif
