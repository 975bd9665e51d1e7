// What MLX lacks on a Linux CPU: an operation of its graph that somebody else computes.
#pragma once
#include <stdbool.h>
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
 * Computes `outputs` from `inputs`; called on the stream's thread. The first output is the result, the
 * others are the inputs that it writes into, which are not among `inputs`. Returns 0, or 1 with a
 * terminated text of at most `capacity` bytes in `message`. It must not unwind.
 */
typedef int (*mlxrs_cpu_compute)(
    const void* state,
    const mlxrs_cpu_view* inputs,
    size_t count,
    const mlxrs_cpu_view* outputs,
    size_t output_count,
    char* message,
    size_t capacity);

/** What computes an operation: a function, its state, and how that ends. */
typedef struct mlxrs_cpu_kernel {
  mlxrs_cpu_compute compute;
  void* state;
  void (*drop)(void* state);
} mlxrs_cpu_kernel;

/** What an operation takes and gives. */
typedef struct mlxrs_cpu_form {
  /** The type of the result. */
  mlx_dtype dtype;
  /** Its shape. */
  int ndim;
  const int* shape;
  /** Its dimensions from the outermost in memory to the innermost. */
  const int* order;
  /** Whether inputs that are not row-major are copied first; otherwise it is those alone whose last
   * dimension is not contiguous. */
  bool row_major;
  /** The inputs that it writes into, which are as it needs them. */
  const int* written;
  size_t written_count;
} mlxrs_cpu_form;

/**
 * An operation on the CPU stream `s`, computed lazily by `kernel`, whose state it owns from the
 * call on, whatever becomes of it. The state is used and dropped on any thread. `res` gets the
 * result, then each written input as it is afterwards; that one shares the buffer of the input, which
 * must not be read where it is written. Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_cpu_operation(
    mlx_vector_array* res,
    const mlx_vector_array inputs,
    mlxrs_cpu_form form,
    mlxrs_cpu_kernel kernel,
    const mlx_stream s);

#ifdef __cplusplus
}
#endif
