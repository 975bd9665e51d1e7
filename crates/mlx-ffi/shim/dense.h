// The product of many rows with a matrix, as one operation of MLX's graph that a replay can hold.
#pragma once
#include "mlx/c/array.h"
#include "mlx/c/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * `x wᵀ` for `x` of `[…, in]` and `w` of `[out, in]`, of one type: `[…, out]`. MLX multiplies; a replay on
 * CUDA lets cuBLASLt multiply.
 * Returns 0, or 1 after the error handler has been called.
 */
int mlxrs_dense(mlx_array* res, const mlx_array x, const mlx_array w, const mlx_stream stream);

#ifdef __cplusplus
}

#include <memory>
#include <vector>

#include "mlx/primitives.h"

namespace mlxrs {

class Dense : public mlx::core::Primitive {
 public:
  // `matmul` is MLX's product of two matrices.
  explicit Dense(std::shared_ptr<mlx::core::Primitive> matmul);

  void eval_cpu(const std::vector<mlx::core::array>& inputs, std::vector<mlx::core::array>& outputs) override;
  void eval_gpu(const std::vector<mlx::core::array>& inputs, std::vector<mlx::core::array>& outputs) override;
  const char* name() const override;

 private:
  std::shared_ptr<mlx::core::Primitive> matmul_;
};

} // namespace mlxrs
#endif
