// Ranks that have an NVIDIA GPU each: groups of MLX's over a communicator of our own. NCCL comes with MLX's library, without
// its headers.
#pragma once
#include <stdbool.h>

#include "mlx/c/distributed_group.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes by which the ranks of a group know each other. */
#define MLXRS_NCCL_ID 128

/** Whether NCCL is there, and an MLX whose internals are known. */
bool mlxrs_nccl_is_there(void);

/**
 * Fills the MLXRS_NCCL_ID bytes of `id` for a new group, in one of its ranks.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_nccl_id(unsigned char* id);

/**
 * The group with this `id`, once all of its `size` ranks are there. Sums and gathers run on the device's stream, and may be
 * among what mlxrs_replay_new and mlxrs_dispatch take. The group holds memory of the device as long as the process lives.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_nccl_join(mlx_distributed_group* res, const unsigned char* id, int rank, int size);

/** Bytes by which a rank opens the memory of another one. */
#define MLXRS_PEER_HANDLE 64

/**
 * Makes memory that the other ranks of `group` write into when they sum, and fills the MLXRS_PEER_HANDLE bytes of `handle`.
 * `text` is the kernel that sums.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_peers_offer(const mlx_distributed_group group, const char* text, unsigned char* handle);

/**
 * Opens the memory of the others, by the `handles` of all ranks.
 * Returns 0, or 1 after the error handler has been called: this device does not reach another one.
 */
int mlxrs_peers_open(const mlx_distributed_group group, const unsigned char* handles);

/**
 * Sums what is known beforehand in this way. All ranks have to have opened it, and all have to call it at the same time.
 * Returns 0, or 1 after the error handler has been called: what they write does not arrive within five seconds, or not as it was.
 */
int mlxrs_peers_try(const mlx_distributed_group group);

/** Lets sums go this way from now on. All ranks have to have opened it, and all have to call it. */
void mlxrs_peers_use(const mlx_distributed_group group);

/**
 * Lets what waits on the device for other ranks end, with any values, and lets later sums and gathers of the group fail.
 * Any thread may call it, and does not wait for it.
 */
void mlxrs_nccl_give_up(const mlx_distributed_group group);

#ifdef __cplusplus
}

#include "cuda_driver.h"
#include "mlx/dtype.h"
#include "mlx/primitives.h"

namespace mlxrs {

// Ranks that sum values.
class NcclGroup;

// The group of which a primitive sums the ranks' values; null for other primitives.
NcclGroup* group_of_sum(mlx::core::Primitive& primitive);

// Whether ranks sum values of this type.
bool sums(mlx::core::Dtype dtype);

// Whether so many values are summed by a kernel of ours.
bool sums_by_kernel(const NcclGroup& group, size_t count, mlx::core::Dtype dtype);

// Sends the sum of so many values to a stream, which may be captured. `overlaps`: a kernel of ours may begin before what was
// sent before it has ended. Throws where NCCL refuses, or where the group is given up.
void sum(
    NcclGroup& group,
    Address from,
    Address to,
    size_t count,
    mlx::core::Dtype dtype,
    bool overlaps,
    Handle stream);

} // namespace mlxrs
#endif
