#include "cuda_launch.h"
#include "cuda_compiler.h"
#include "guarded.h"
#include "in_place.h"
#include "kernel_folder.h"
#include "mlx_internals.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "mlx/c/private/vector.h"

namespace {

using namespace mlx::core;
using namespace mlxrs;

// A line that includes `text` from a file, or from memory, or `text` itself where there is neither. MLX hashes the
// text of a kernel whenever it is launched, which takes longer than the launch. By that hash it finds an image on
// disk, so the line is the same in each process where there is a folder for images.
std::string outside(const std::string& text) {
  if (auto path = file_of(text)) {
    return "#include \"" + *path + "\"\n";
  }
#if defined(__linux__)
  static std::mutex mutex;
  static std::map<std::string, std::string> lines;
  std::lock_guard lock(mutex);
  auto& line = lines[text];
  if (line.empty()) {
    line = text;
    // Open as long as the process runs: MLX compiles a kernel when it is first needed.
    int file = memfd_create("mlxrs-kernel", MFD_CLOEXEC);
    if (file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size())) {
      auto path = "/proc/self/fd/" + std::to_string(file);
      if (access(path.c_str(), R_OK) == 0) {
        line = "#include \"" + path + "\"\n";
      }
    } else if (file >= 0) {
      close(file);
    }
  }
  return line;
#else
  return text;
#endif
}

// What MLX puts before a kernel includes much that ours do not use and that takes a second to compile,
// at the first use by each process. Left alone where it is not what was expected.
void shorten(Kernel& kernel) {
  constexpr std::string_view prelude = R"(#include <cuda_bf16.h>
#include <cuda_fp16.h>
using uint8_t = unsigned char;
using int32_t = int;
using uint32_t = unsigned;
using int64_t = long long;
namespace mlx::core::cu {
template <typename I>
struct Ten {
  I of[10];
  __device__ I operator[](int i) const { return of[i]; }
};
using Shape = Ten<int32_t>;
using Strides = Ten<int64_t>;
}
)";
  std::string text = text_of(kernel);
  for (auto head : KERNEL_HEADS) {
    auto at = text.find(head);
    if (at == std::string::npos) {
      return;
    }
    text.erase(at, head.size());
  }
  text_of(kernel) = outside(std::string(prelude) + text);
}

struct Launch {
  std::shared_ptr<Primitive> kernel;
  std::vector<Shape> shapes;
  std::vector<Dtype> dtypes;
  std::vector<int> written;
};

} // namespace

namespace {

// The launch that `arrays` are all outputs of.
std::unique_ptr<Launch> launch_of(const std::vector<array>& arrays) {
  if (arrays.empty() || !arrays[0].has_primitive()) {
    throw std::invalid_argument("a launch needs the outputs of a kernel");
  }
  auto launch = std::make_unique<Launch>();
  launch->kernel = arrays[0].primitive_ptr();
  for (auto& array : arrays) {
    launch->shapes.push_back(array.shape());
    launch->dtypes.push_back(array.dtype());
  }
  return launch;
}

} // namespace

// Exceptions become a call of the error handler, as everywhere in mlx-c.
extern "C" int mlxrs_launch_of(mlxrs_launch* res, const mlx_vector_array outputs) {
  return mlxrs::guarded([&] { res->ctx = launch_of(mlx_vector_array_get_(outputs)).release(); });
}

extern "C" int mlxrs_launch_new(
    mlxrs_launch* res,
    const mlx_vector_array outputs,
    const int* written,
    size_t count) {
  return mlxrs::guarded([&] {
    auto launch = launch_of(mlx_vector_array_get_(outputs));
    if (auto* kernel = kernel_of(*launch->kernel)) {
      shorten(*kernel);
      try {
        begin_to_compile(*kernel);
      } catch (std::runtime_error&) {
        // This thread has not used the device yet: it is compiled when it is launched.
      }
    }
    launch->written.assign(written, written + count);
    launch->kernel = std::make_shared<InPlace>(launch->kernel, launch->written);
    res->ctx = launch.release();
  });
}

extern "C" int mlxrs_launch_apply(
    mlx_vector_array* res,
    const mlxrs_launch launch,
    const mlx_vector_array inputs) {
  return mlxrs::guarded([&] {
    auto& of = *static_cast<Launch*>(launch.ctx);
    auto& arrays = mlx_vector_array_get_(inputs);
    auto shapes = of.shapes;
    auto dtypes = of.dtypes;
    for (int index : of.written) {
      shapes.push_back(arrays.at(index).shape());
      dtypes.push_back(arrays.at(index).dtype());
    }
    mlx_vector_array_set_(*res, array::make_arrays(shapes, dtypes, of.kernel, arrays));
  });
}

extern "C" void mlxrs_launch_free(mlxrs_launch launch) {
  delete static_cast<Launch*>(launch.ctx);
}
