#include "detach.h"

#include "mlx/c/error.h"
#include "mlx/c/private/array.h"

// Exceptions become a call of the error handler, as everywhere in mlx-c.
extern "C" int mlxrs_array_detach(mlx_array arr) {
  try {
    mlx_array_get_(arr).detach();
  } catch (std::exception& e) {
    mlx_error("%s", e.what());
    return 1;
  }
  return 0;
}
