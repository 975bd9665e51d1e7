//! Products with a matrix for each expert of a mixture.

use mlx_ffi::{Array, Indices, Quantized, cpu, gather_qmm, ops};

use super::choice::Kernels;

/// The order in which experts are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Any.
    Any,
    /// Upwards.
    Sorted,
}

impl Kernels {
    /// `x wᵀ` with a matrix of `w`, `[experts, out, in]`, for each of `indices`, `[t, e]`: `x` of
    /// `[t, 1 or e, in]` to `[t, e, out]`.
    pub fn gather_dense(
        self,
        x: &Array,
        w: &Array,
        indices: &Indices,
        order: Order,
    ) -> mlx_ffi::Result<Array> {
        match self {
            Kernels::Mlx | Kernels::MlxOnCuda | Kernels::Cuda => {
                let (x, w) = (ops::expand_dims(x, -2)?, ops::swap_axes(w, -1, -2)?);
                let product = ops::gather_mm(&x, &w, indices, order == Order::Sorted)?;
                ops::squeeze(&product, -2)
            }
            Kernels::Cpu => cpu::gather_matmul(x, w, indices),
        }
    }

    /// `x wᵀ` with a packed matrix of `w`, `[experts, out, in]`, for each of `indices`, `[t, e]`: `x` of
    /// `[t, 1 or e, in]` to `[t, e, out]`.
    pub fn gather_quantized(
        self,
        x: &Array,
        w: &Quantized,
        indices: &Indices,
        order: Order,
    ) -> mlx_ffi::Result<Array> {
        match self {
            Kernels::Mlx | Kernels::MlxOnCuda | Kernels::Cuda => {
                let x = ops::expand_dims(x, -2)?;
                ops::squeeze(&gather_qmm(&x, w, indices, order == Order::Sorted)?, -2)
            }
            Kernels::Cpu => cpu::gather_quantized_matmul(x, w, indices),
        }
    }

    /// Whether products of many rows are faster where the matrices are named in order. Our own
    /// kernels bring the rows of a matrix together themselves.
    pub fn prefers_order(self) -> bool {
        self != Kernels::Cpu
    }
}
