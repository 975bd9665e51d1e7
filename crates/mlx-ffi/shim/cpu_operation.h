// What MLX lacks on a Linux CPU: an operation of its graph that somebody else computes.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "mlx/c/array.h"
#include "mlx/c/stream.h"
#include "mlx/c/vector.h"

#ifdef __cplusplus
extern "C" {
#endif

/** An array as a kernel sees it. Values of the last dimension lie side by side. */
typedef struct mlxrs_cpu_view {
  /** The first element. */
  void* data;
  /** Bytes from there to the end of the last element. */
  size_t size;
  mlx_dtype dtype;
  int ndim;
  const int* shape;
  /** In elements, none negative. */
  const int64_t* strides;
} mlxrs_cpu_view;

/**
 * Computes `out` from `inputs`; called on the stream's thread. Returns 0, or 1 with a terminated
 * text of at most `capacity` bytes in `message`. It must not unwind.
 */
typedef int (*mlxrs_cpu_compute)(
    const void* state,
    const mlxrs_cpu_view* inputs,
    size_t count,
    const mlxrs_cpu_view* out,
    char* message,
    size_t capacity);

/** What computes an operation: a function, its state, and how that ends. */
typedef struct mlxrs_cpu_kernel_of {
  mlxrs_cpu_compute compute;
  void* state;
  void (*drop)(void* state);
} mlxrs_cpu_kernel_of;

/** An operation's result. */
typedef struct mlxrs_cpu_result {
  mlx_dtype dtype;
  int ndim;
  const int* shape;
  /** The dimensions from the outermost in memory to the innermost. */
  const int* order;
} mlxrs_cpu_result;

/**
 * An operation on the CPU stream `s`, computed lazily by `kernel`, whose state it owns from the
 * call on, whatever becomes of it. The state is used and dropped on any thread. Inputs whose
 * last dimension is not contiguous are copied first. Returns 0, or 1 after the error handler has
 * been called.
 */
int mlxrs_cpu_operation(
    mlx_array* res,
    const mlx_vector_array inputs,
    mlxrs_cpu_result result,
    mlxrs_cpu_kernel_of kernel,
    const mlx_stream s);

#ifdef __cplusplus
}
#endif
