//! The matrices of a checkpoint.

use mlx_ffi::{Array, Quantized};

/// A matrix as the checkpoint has it.
#[derive(Debug)]
pub(crate) enum Matrix {
    /// `[out, in]`, or `[experts, out, in]`.
    Dense(Array),
    /// `[out, in]` or `[experts, out, in]`, packed along `in`.
    Quantized(Quantized),
}
