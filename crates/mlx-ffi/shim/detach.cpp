#include "detach.h"

#include <stdexcept>

#include "guarded.h"
#include "mlx/c/private/array.h"

extern "C" int mlxrs_array_detach(const mlx_array a) {
  return mlxrs::guarded([&] {
    auto& own = mlx_array_get_(a);
    if (own.status() == mlx::core::array::Status::unscheduled) {
      // Without its operation it would have no value ever.
      throw std::runtime_error("an array is detached that was not sent to its device");
    }
    own.detach();
  });
}
