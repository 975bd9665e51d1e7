//! Layer normalisation.

use mlx_ffi::{Array, Result, fast};

/// `(x - mean(x)) / √(variance(x) + eps) · weight + bias` over the last dimension.
#[derive(Debug)]
pub(crate) struct LayerNorm {
    /// `[size]`.
    pub weight: Array,
    /// `[size]`.
    pub bias: Array,
    pub eps: f32,
}

impl LayerNorm {
    /// `[…, size]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        fast::layer_norm(x, Some(&self.weight), Some(&self.bias), self.eps)
    }
}
