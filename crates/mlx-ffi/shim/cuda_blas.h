// NVIDIA's library of products, which MLX's library brings along, without its headers.
#pragma once
#include "cuda_driver.h"
#include "mlx/dtype.h"

namespace mlxrs {

// Bytes that a product may use beside its operands.
constexpr size_t BLAS_WORKSPACE = 32 << 20;

// `y = x wᵀ` with `x` of `[rows, in]`, `w` of `[out, in]` and `y` of `[rows, out]`, all row-major.
struct Product {
  int rows, in, out;
  mlx::core::Dtype dtype;
  Address x, w, y;
};

// Whether the library is there and multiplies this type.
bool multiplies(mlx::core::Dtype dtype);

// Sends the product to a stream, which may be captured. `workspace` has BLAS_WORKSPACE bytes. Throws where the
// library refuses.
void multiply(const Product& product, Address workspace, Handle stream);

} // namespace mlxrs
