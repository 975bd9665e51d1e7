#include "allocate.h"

#include <stdexcept>

#include "mlx/allocator.h"
#include "mlx/c/error.h"
#include "mlx/c/private/array.h"
#include "mlx/c/private/enums.h"

// Exceptions become a call of the error handler, as everywhere in mlx-c.
extern "C" int mlxrs_array_allocate(
    mlx_array* res,
    void** data,
    const int* shape,
    size_t dim,
    mlx_dtype dtype) {
  namespace mx = mlx::core;
  try {
    auto type = mlx_dtype_to_cpp(dtype);
    size_t size = mx::size_of(type);
    for (size_t i = 0; i < dim; ++i) {
      size *= shape[i];
    }
    auto buffer = mx::allocator::malloc(size);
    *data = buffer.raw_ptr();
    if (*data == nullptr) {
      throw std::runtime_error("there is no memory for an array of " + std::to_string(size) + " bytes");
    }
    mlx_array_set_(*res, mx::array(buffer, mx::Shape(shape, shape + dim), type));
  } catch (std::exception& e) {
    mlx_error("%s", e.what());
    return 1;
  }
  return 0;
}
