// What mlx-c lacks: the memory of the device as its driver counts it, and of the process as the system does.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Bytes of a CUDA device that no process holds, and that it has. Zero for both where there is no CUDA,
 * or where this thread has not used the device yet.
 */
void mlxrs_device_memory(size_t* free_bytes, size_t* total_bytes);

/**
 * Bytes that this process holds: of the CUDA device, where `on_gpu` and there is one, else of the
 * machine's memory. Zero where nobody tells.
 */
size_t mlxrs_held_memory(bool on_gpu);

/** Bytes of a CUDA device that its pool has taken for arrays, those that are free for the next ones included. */
size_t mlxrs_pooled_memory(void);

/**
 * Lets CUDA's pool keep what was freed until mlxrs_trim_memory. By itself it would give memory back whenever
 * anybody waits for anything: also what MLX has freed while a kernel still uses it, since MLX frees on another
 * stream than it computes on; and taking it anew costs milliseconds.
 */
void mlxrs_keep_pool(void);

/** Waits for all that the process has sent to its CUDA device; whether that failed is said to whoever comes next. */
void mlxrs_wait_for_device(void);

/**
 * Gives back to the system what CUDA's pool keeps of memory that was freed. It waits for the device.
 */
void mlxrs_trim_memory(void);

/**
 * Gives back to the system what the C library keeps of memory that was freed, where it can be asked to.
 */
void mlxrs_trim_heap(void);

/**
 * Holds so many bytes of the CUDA device from now on, and nothing where there are not so many. Drivers take
 * memory for kernels when these are first used, and MLX does not outlive it where there is none: what is
 * held is there to be let go of before that.
 */
void mlxrs_reserve_memory(size_t bytes);

/**
 * Lets `skip` allocations of the shim succeed and the `count` ones after them fail, on any thread; for
 * tests of what comes after a failure. Zero for `count` ends it.
 */
void mlxrs_fail_allocations(size_t skip, size_t count);

#ifdef __cplusplus
}

namespace mlxrs {

// Stands before each allocation of the shim: throws where a test asked for it.
void may_allocate(size_t bytes);

} // namespace mlxrs
#endif
