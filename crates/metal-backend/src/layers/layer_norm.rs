//! Layer normalisation.

use mlx_ffi::{Array, Result};

use crate::kernels::Kernels;

/// `(x - mean(x)) / √(variance(x) + eps) · weight + bias` over the last dimension.
#[derive(Debug)]
pub(crate) struct LayerNorm {
    /// `[size]`.
    pub weight: Array,
    /// `[size]`, where it has one.
    pub bias: Option<Array>,
    pub eps: f32,
    /// Whose kernels compute it.
    pub kernels: Kernels,
}

impl LayerNorm {
    /// `[…, size]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        self.kernels.layer_norm(x, &self.weight, self.bias.as_ref(), self.eps)
    }
}
