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

// Sends the sum of so many values to a stream, which may be captured. Throws where NCCL refuses, or where the group is given
// up.
void sum(NcclGroup& group, Address from, Address to, size_t count, mlx::core::Dtype dtype, Handle stream);

} // namespace mlxrs
#endif
