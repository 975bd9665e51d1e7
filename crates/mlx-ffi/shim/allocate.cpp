#include "allocate.h"
#include "device_memory.h"
#include "guarded.h"

#include <cstdint>
#include <stdexcept>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "mlx/allocator.h"
#include "mlx/c/private/array.h"
#include "mlx/c/private/enums.h"
#include "mlx/device.h"

namespace {

namespace mx = mlx::core;

// Kernels for CPUs read whole lines of the cache.
constexpr size_t LINE = 64;

// Asks for pages of two MiB instead of 4 KiB where they fit: a step reads all weights, which are more
// pages than a processor remembers the places of.
void ask_for_large_pages(uintptr_t first, size_t size) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t LARGE = 2 << 20;
  auto from = (first + LARGE - 1) / LARGE * LARGE;
  auto to = (first + size) / LARGE * LARGE;
  if (from < to) {
    // A wish: what comes of it is for the system to say.
    madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
  }
#endif
}

mx::array allocate(const mx::Shape& shape, mx::Dtype dtype) {
  size_t count = 1;
  size_t long_dims = 0;
  for (auto dim : shape) {
    count *= dim;
    long_dims += dim > 1;
  }
  size_t size = count * mx::size_of(dtype);
  static const bool has_gpu = mx::is_available(mx::Device::gpu);
  size_t room = has_gpu ? size : size + LINE;
  mlxrs::may_allocate(room);
  auto buffer = mx::allocator::malloc(room);
  auto first = reinterpret_cast<uintptr_t>(buffer.raw_ptr());
  if (first == 0) {
    throw std::runtime_error("there is no memory for an array of " + std::to_string(size) + " bytes");
  }
  if (has_gpu) {
    return mx::array(buffer, shape, dtype);
  }
  ask_for_large_pages(first, room);
  // MLX's memory begins at a multiple of eight bytes.
  auto before = (LINE - first % LINE) % LINE;
  mx::array all(buffer, {static_cast<mx::ShapeElem>(1)}, mx::uint8);
  mx::array part(shape, dtype, nullptr, {});
  part.copy_shared_buffer(
      all, part.strides(), {true, true, long_dims <= 1}, count, static_cast<int64_t>(before / mx::size_of(dtype)));
  part.set_status(mx::array::Status::available);
  return part;
}

} // namespace

// Exceptions become a call of the error handler, as everywhere in mlx-c.
extern "C" int mlxrs_array_allocate(
    mlx_array* res,
    void** data,
    const int* shape,
    size_t dim,
    mlx_dtype dtype) {
  return mlxrs::guarded([&] {
    auto array = allocate(mx::Shape(shape, shape + dim), mlx_dtype_to_cpp(dtype));
    *data = array.data<char>();
    mlx_array_set_(*res, std::move(array));
  });
}
