// The thread on which MLX gives back what a CUDA stream is through with.
#pragma once
#include "mlx/c/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Has another thread give back what this thread's `stream` of a CUDA device is through with. That of MLX is busy from its first
 * task on: it never waits for the next one, and holds the lock that each commit needs. Without effect where nothing is known
 * of MLX's own, and for a stream that has one already.
 */
int mlxrs_replace_worker(mlx_stream stream);

#ifdef __cplusplus
}
#endif
