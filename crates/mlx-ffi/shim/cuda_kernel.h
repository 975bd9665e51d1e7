// What the files about kernels for CUDA share: kernels as MLX keeps them, and those that write into
// their inputs.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "mlx/fast_primitives.h"
#include "mlx/primitives.h"

namespace mlxrs {

// A kernel as MLX has it, and what its class keeps to itself.
using Kernel = mlx::core::fast::CustomKernel;
std::string& text_of(Kernel& kernel);
const std::string& name_of(const Kernel& kernel);
const std::tuple<int, int, int>& grid_of(const Kernel& kernel);
const std::tuple<int, int, int>& block_of(const Kernel& kernel);
// For each input, whether the kernel takes its shape, its strides and the number of its dimensions.
const std::vector<std::tuple<bool, bool, bool>>& takes_of(const Kernel& kernel);
// Whether inputs must be row-major.
bool copies_of(const Kernel& kernel);

// The kernel of a primitive, as MLX has it or as one that writes into its inputs; null for others.
inline Kernel* kernel_of(mlx::core::Primitive& primitive) {
  return std::string_view(primitive.name()) == "CustomKernel" ? static_cast<Kernel*>(&primitive)
                                                              : nullptr;
}

// A kernel of which some inputs are outputs too.
class InPlace : public mlx::core::Primitive {
 public:
  InPlace(std::shared_ptr<mlx::core::Primitive> kernel, std::vector<int> written)
      : Primitive(kernel->stream()), kernel_(std::move(kernel)), written_(std::move(written)) {}

  void eval_cpu(
      const std::vector<mlx::core::array>& inputs,
      std::vector<mlx::core::array>& outputs) override {
    kernel_->eval_cpu(inputs, outputs);
  }

  void eval_gpu(
      const std::vector<mlx::core::array>& inputs,
      std::vector<mlx::core::array>& outputs) override {
    size_t own = outputs.size() - written_.size();
    // Copies of handles: what the kernel allocates is the outputs'.
    std::vector<mlx::core::array> results(outputs.begin(), outputs.begin() + own);
    kernel_->eval_gpu(inputs, results);
    for (size_t i = 0; i < written_.size(); i++) {
      outputs[own + i].copy_shared_buffer(inputs[written_[i]]);
    }
  }

  const char* name() const override {
    return "InPlace";
  }

  mlx::core::Primitive& kernel() const {
    return *kernel_;
  }

  const std::vector<int>& written() const {
    return written_;
  }

 private:
  std::shared_ptr<mlx::core::Primitive> kernel_;
  std::vector<int> written_;
};

} // namespace mlxrs
