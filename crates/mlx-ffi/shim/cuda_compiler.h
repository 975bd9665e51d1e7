// Kernels that are compiled once more for launches of our own: MLX does not hand out what it compiled.
#pragma once
#include "cuda_driver.h"
#include "mlx_internals.h"

#include <string>

namespace mlxrs {

struct Compiled {
  // Null as long as it is compiled, on a thread of its own, which the first call starts.
  Handle function;
  // The compiler refused.
  bool is_impossible;
};

// A kernel; `overlap`: others run beside it.
Compiled compiled(Kernel& kernel, bool overlap);

// The kernel `name` of a text of our own, once it is compiled. Throws where the compiler refuses.
Handle function_of_text(const std::string& name, const std::string& text);

// Where images are kept on disk, lets a thread make that of a kernel, or read it.
void begin_to_compile(Kernel& kernel);

// Waits for that, so that MLX finds the image when it wants the kernel.
void wait_for_image(Kernel& kernel);

} // namespace mlxrs
