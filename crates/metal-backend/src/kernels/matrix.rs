//! The matrices of a checkpoint.

use mlx_ffi::{Array, Quantized, cuda};

/// A matrix as the checkpoint has it.
#[derive(Debug)]
pub(crate) enum Matrix {
    /// `[out, in]`, or `[experts, out, in]`.
    Dense(Array),
    /// `[out, in]` or `[experts, out, in]`, packed along `in`.
    Quantized(Quantized),
}

impl Matrix {
    /// As kernels for CUDA take it.
    pub fn on_cuda(&self) -> cuda::Weights<'_> {
        match self {
            Matrix::Dense(w) => cuda::Weights::Dense(w),
            Matrix::Quantized(w) => cuda::Weights::Packed(w),
        }
    }
}
