//! Root-mean-square normalisation.

use mlx_ffi::{Array, Result, fast};

/// `x / √(mean(x²) + eps) · weight` over the last dimension.
#[derive(Debug)]
pub(crate) struct RmsNorm {
    weight: Array,
    eps: f32,
}

impl RmsNorm {
    /// A norm by `weight`, `[size]`.
    pub fn new(weight: Array, eps: f32) -> Self {
        RmsNorm { weight, eps }
    }

    /// `[…, size]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        fast::rms_norm(x, Some(&self.weight), self.eps)
    }
}
