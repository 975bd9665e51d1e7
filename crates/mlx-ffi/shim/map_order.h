// The order in which MLX writes the tensors of a file.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Writes the order in which MLX, given the tensors called `names` one after the other, writes them into a
 * safetensors file: that of the standard library's hash map. `order` has room for `count` indices.
 */
int mlxrs_map_order(const char* const* names, size_t count, size_t* order);

#ifdef __cplusplus
}
#endif
