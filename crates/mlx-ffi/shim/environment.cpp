#include "environment.h"

#include <cstdlib>

#include "kernel_folder.h"

// MLX reads these once, before it computes anything. What the user has set stays.
__attribute__((constructor)) static void set_environment() {
  constexpr int KEEP = 0;
  // MLX keeps a CUDA graph for each form of what it sends, the last 400 of them, and fails once it has met
  // twice as many. Batches of a hundred rows that join and leave have more forms than that in some minutes.
  // Without the check, the oldest graph makes room.
  setenv("MLX_ENABLE_CACHE_THRASHING_CHECK", "0", KEEP);
  // Tensor cores would round the factors of products in F32 to ten bits; whoever asks for F32 wants all.
  setenv("MLX_ENABLE_TF32", "0", KEEP);
  mlxrs::name_kernel_folder();
}

extern "C" void mlxrs_environment(void) {}
