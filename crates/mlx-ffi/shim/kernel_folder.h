// Images of kernels on disk, so that the next process need not compile them. MLX's own lie in the same folder, and
// MLX reads ours from there.
#pragma once
#include <optional>
#include <string>

namespace mlxrs {

// Names the folder for MLX, in the user's cache folder and by machine, driver and MLX's version. Nothing where
// there is no NVIDIA GPU, and where the user has named another one.
void name_kernel_folder();

// Whether the folder is there, is the user's own, and nobody else may write into it. The first call makes it, and
// takes away what was written halfway.
bool has_kernel_folder();

// A file with this text, whose path depends on the text alone; nothing where it cannot be.
std::optional<std::string> file_of(const std::string& text);

// What a compiler made of a kernel.
struct Image {
  std::string bytes;
  // The name of its function there.
  std::string lowered;
};

// The image of a kernel, made by the same `maker`: the architecture and the compiler. `module` is MLX's name for
// it, `name` that of its function. What does not fit or is damaged is taken away.
std::optional<Image> read_image(const std::string& module, const std::string& name, const std::string& maker);

// Keeps an image for later processes. Where that fails, they compile it again.
void keep_image(
    const std::string& module,
    const std::string& name,
    const std::string& maker,
    const Image& image);

} // namespace mlxrs
