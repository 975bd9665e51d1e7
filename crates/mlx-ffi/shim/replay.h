// What MLX lacks: operations that are sent to a device as one, again and again.
#pragma once
#include <stdbool.h>

#include "mlx/c/array.h"
#include "mlx/c/vector.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Lets this thread wait for a CUDA device, and ask it for memory, while MLX captures operations on another
 * thread: otherwise that capture fails, and MLX ends the process.
 */
void mlxrs_relax_captures(void);

/** A number of the CUDA device, as cuDeviceGetAttribute has it; 0 where there is no device, or nobody tells. */
int mlxrs_device_number(int attribute);

/** What came of the wish to repeat operations, or to send them. */
typedef enum mlxrs_outcome_ {
  MLXRS_DONE,
  MLXRS_NOT_YET,
  MLXRS_IMPOSSIBLE,
} mlxrs_outcome;

/** Ranks that compute together, and must repeat and send the same operations. */
typedef struct mlxrs_agreement_ {
  /** What comes of it in all ranks where it is `own` in this one: the last outcome of any. Negative where they cannot be
   * asked. Null where there is one rank. */
  int (*agree)(void* data, int own);
  void* data;
  /** What is impossible in this rank is an error that says why. */
  bool is_strict;
} mlxrs_agreement;

/** Operations of ours, one after the other, over buffers that stay where they are. */
typedef struct mlxrs_replay_ {
  void* ctx;
} mlxrs_replay;

/**
 * The operations that make `output`, which is not evaluated, of `moving`, which are not either, of `fixed`
 * and of whatever else is evaluated. MLXRS_DONE: `res` has them. MLXRS_NOT_YET while kernels are compiled for this, which
 * takes a second on other threads: then it is worth another try. MLXRS_IMPOSSIBLE where something else than operations of
 * mlxrs_launch_apply, mlxrs_dense, mlxrs_cpu_operation and sums of a group of mlxrs_nccl_join is among them; or where CUDA
 * has no memory left for it. With `overlap` a kernel for CUDA begins before the one before it has ended, as far as it
 * does not read what that one writes. With `follows` the `fixed` arrays, which are row-major, may be others each time. All ranks of `agreement` ask for it at the same time, and get the same outcome.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_replay_new(
    mlxrs_replay* res,
    mlxrs_outcome* outcome,
    const mlx_array output,
    const mlx_vector_array moving,
    const mlx_vector_array fixed,
    bool overlap,
    bool follows,
    mlxrs_agreement agreement);

/**
 * Whether mlxrs_replay_run repeats the operations for these arrays.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_replay_fits(
    bool* res,
    mlxrs_replay replay,
    const mlx_vector_array moving,
    const mlx_vector_array fixed);

/**
 * Sends the operations to the device for other `moving` of the same shapes and types, behind all that was
 * sent before; the moving arrays are of the same stream. `res` gets the output, which has the same buffer
 * each time, or nothing where one of the other arrays is not in the buffer that it was in; of `fixed` ones that are
 * followed, where one has another shape. Those of four dimensions may be longer along the third, all that were of one shape
 * alike, where operations take the length from what they are given.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_replay_run(
    mlx_vector_array* res,
    mlxrs_replay replay,
    const mlx_vector_array moving,
    const mlx_vector_array fixed);

/**
 * Waits for what it has sent, and lets go of what that read.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_replay_wait(mlxrs_replay replay);

/** Waits for what it has sent. */
void mlxrs_replay_free(mlxrs_replay replay);

/** Operations that are sent to a CUDA device one after the other, past MLX. */
typedef struct mlxrs_dispatcher_ {
  void* ctx;
} mlxrs_dispatcher;

/**
 * A dispatcher, to which nothing is possible where there is no CUDA.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_dispatcher_new(mlxrs_dispatcher* res);

/**
 * Sends the operations that make `outputs`, behind all that was sent before, and sets `res`. MLXRS_DONE: the
 * outputs count as evaluated; operations of the same stream may read them, anybody else only after
 * mlxrs_dispatcher_wait. Otherwise they are as they were: MLXRS_NOT_YET while kernels are compiled for this, on
 * other threads; MLXRS_IMPOSSIBLE where operations other than those that mlxrs_replay_new takes stand between
 * such ones. What does not need them is evaluated before. All ranks of `agreement` ask for it at the same time, and get
 * the same outcome.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_dispatch(
    mlxrs_outcome* res,
    mlxrs_dispatcher dispatcher,
    const mlx_vector_array outputs,
    mlxrs_agreement agreement);

/**
 * Waits for what was sent.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_dispatcher_wait(mlxrs_dispatcher dispatcher);

/** Gives up the memory that it keeps for what is dispatched next. */
void mlxrs_dispatcher_rest(mlxrs_dispatcher dispatcher);

/** Waits for what was sent. */
void mlxrs_dispatcher_free(mlxrs_dispatcher dispatcher);

#ifdef __cplusplus
}
#endif
