// Kernels of ours for CUDA, which may write into their inputs.
#pragma once
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cuda_compiler.h"
#include "cuda_driver.h"
#include "mlx/primitives.h"

namespace mlxrs {

// Whether the values of the last dimension lie side by side, which such kernels take for granted.
inline bool is_dense(const mlx::core::Shape& shape, const mlx::core::Strides& strides) {
  return shape.empty() || shape.back() <= 1 || strides.back() == 1;
}

// A kernel, of which some inputs may be outputs too.
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
    for (auto& input : inputs) {
      if (!written_.empty() && !is_dense(input.shape(), input.strides())) {
        throw std::invalid_argument("a kernel cannot read an array whose last dimension has gaps");
      }
    }
    // MLX would hand it a copy, in which nobody looks for what was written.
    auto* kernel = kernel_of(*kernel_);
    for (int index : written_) {
      if (kernel && copies_of(*kernel) && !inputs[index].flags().row_contiguous) {
        throw std::invalid_argument("a kernel cannot write into an array that is not row-major");
      }
    }
    if (kernel && !is_compiled_) {
      wait_for_image(*kernel);
    }
    is_compiled_ = true;
    size_t own = outputs.size() - written_.size();
    // Copies of handles: what the kernel allocates is the outputs'.
    std::vector<mlx::core::array> results(outputs.begin(), outputs.begin() + own);
    kernel_->eval_gpu(inputs, results);
    for (size_t i = 0; i < written_.size(); i++) {
      outputs[own + i].copy_shared_buffer(inputs[written_[i]]);
    }
    // MLX holds what is read until that is done, and not what is written: whoever drops it meanwhile would give
    // memory back that the kernel is about to write.
    if (cuda()) {
      auto& encoder = *static_cast<Encoder*>(cuda()->encoder(stream()));
      for (auto& output : outputs) {
        encoder.temporaries.push_back(output.data_shared_ptr());
      }
      // Nor does MLX know that it is written: what reads it next runs behind the kernel.
      auto id_of = [](const mlx::core::array& a) { return reinterpret_cast<std::uintptr_t>(a.buffer().ptr()); };
      auto node = own > 0 ? encoder.node_map.find(id_of(outputs[0])) : encoder.node_map.end();
      if (node != encoder.node_map.end()) {
        auto kernel_node = node->second;
        for (size_t i = own; i < outputs.size(); i++) {
          encoder.node_map.insert_or_assign(id_of(outputs[i]), kernel_node);
        }
      }
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
  // Its image is there, or MLX has compiled it.
  bool is_compiled_{false};
};

} // namespace mlxrs
