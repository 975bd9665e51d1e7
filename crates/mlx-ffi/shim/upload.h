// What MLX lacks on CUDA: arrays from the host that lie in the device's memory from the beginning, and arrays that stay there
// as the host reads them.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "mlx/c/array.h"
#include "mlx/c/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes an array of `dtype` and `shape` with the bytes of `data` in memory of the CUDA device that `stream` is of.
 * `done` stays false where there is none, and where MLX's own way is better: for arrays of up to eight bytes, and for
 * large ones unless they are read `soon`. MLX puts them into managed memory, which comes to the device as a kernel first reads it. Where another
 * process has taken the device's memory by then, that read is an illegal access, and no kernel of the process runs
 * any more. Here it is this call that fails, for want of memory.
 * Only operations of this thread may read the array before mlxrs_wait_for_upload.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_array_upload(
    mlx_array* res,
    bool* done,
    const void* data,
    const int* shape,
    size_t dim,
    mlx_dtype dtype,
    bool soon,
    const mlx_stream stream);

/** Waits until the host may read an array, where that is one that this thread has uploaded, or a part of such. */
void mlxrs_wait_for_upload(const mlx_array a);

/**
 * Copies the bytes of an array, which is evaluated and row-major, to `to`. `done` stays false where it does not lie in memory of
 * the CUDA device that `stream` is of. MLX moves what the host reads to managed memory, and gives that to a later array of the same size: the kernel
 * that writes it waits for the page, some 100 us.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_array_download(bool* done, const mlx_array a, void* to, const mlx_stream stream);

#ifdef __cplusplus
}
#endif
