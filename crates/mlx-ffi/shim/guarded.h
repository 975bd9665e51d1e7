// How exceptions leave the shim.
#pragma once
#include <exception>

#include "mlx/c/error.h"

namespace mlxrs {

// Does `work`. An exception becomes a call of the error handler, and 1, as everywhere in mlx-c; otherwise it is 0.
template <typename F>
int guarded(F work) {
  try {
    work();
  } catch (std::exception& e) {
    mlx_error("%s", e.what());
    return 1;
  }
  return 0;
}

} // namespace mlxrs
