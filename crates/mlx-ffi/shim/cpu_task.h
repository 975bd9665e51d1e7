// What the files about operations on a CPU share: one that is ready to be computed.
#pragma once
#include <memory>
#include <vector>

#include "cpu_operation.h"
#include "mlx/array.h"
#include "mlx/primitives.h"

namespace mlxrs {

// An array as an operation finds it, and where it goes in row-major order if it is copied first.
struct CpuOperand {
  char* data;
  mlx::core::Dtype dtype;
  mlx::core::Shape shape;
  mlx::core::Strides strides;
  char* packed = nullptr;

  // Whether a kernel can take it as it is.
  bool is_fit(bool row_major) const;
  // Whether both have a byte in common, as far as their first and last elements tell.
  bool overlaps(const CpuOperand& other) const;
  // As the kernel sees it, after the copy.
  mlxrs_cpu_view view();
};

// An operation with its operands.
struct CpuTask {
  std::vector<CpuOperand> inputs;
  std::vector<CpuOperand> outputs;
  mlxrs_cpu_compute compute;
  std::shared_ptr<void> state;

  // Throws what the kernel says.
  void run();
};

class CpuOperation : public mlx::core::Primitive {
 public:
  CpuOperation(mlx::core::Stream stream, const mlxrs_cpu_form& form, mlxrs_cpu_compute compute, std::shared_ptr<void> state);

  void eval_cpu(
      const std::vector<mlx::core::array>& inputs,
      std::vector<mlx::core::array>& outputs) override;
  void eval_gpu(
      const std::vector<mlx::core::array>& inputs,
      std::vector<mlx::core::array>& outputs) override;
  bool is_equivalent(const mlx::core::Primitive& other) const override;
  const char* name() const override;

  // The inputs that it writes into.
  const std::vector<int>& written() const {
    return written_;
  }
  bool row_major() const {
    return row_major_;
  }
  // In which the result lies in memory.
  mlx::core::Strides strides(const mlx::core::Shape& shape) const;
  // With its operands, of which those that it writes into are among `outputs` alone.
  CpuTask task(std::vector<CpuOperand> inputs, std::vector<CpuOperand> outputs) const;

 private:
  mlx::core::Shape order_;
  bool row_major_;
  std::vector<int> written_;
  mlxrs_cpu_compute compute_;
  std::shared_ptr<void> state_;
};

} // namespace mlxrs
