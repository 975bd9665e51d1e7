#include "environment.h"

#include <cstdlib>

// MLX keeps a CUDA graph for each form of what it sends, the last 400 of them, and fails once it has met
// twice as many. Batches of a hundred rows that join and leave have more forms than that in some minutes.
// Without the check, the oldest graph makes room. What the user has set stays.
__attribute__((constructor)) static void set_environment() {
  setenv("MLX_ENABLE_CACHE_THRASHING_CHECK", "0", /* overwrite */ 0);
}

extern "C" void mlxrs_environment(void) {}
