// What MLX reads from the environment and must find there.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Sees to it that this file is linked, which sets what MLX needs as the program is loaded: before it has
 * threads that could read the environment meanwhile.
 */
void mlxrs_environment(void);

#ifdef __cplusplus
}
#endif
