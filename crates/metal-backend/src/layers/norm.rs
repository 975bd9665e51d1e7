//! Root-mean-square normalisation.

use mlx_ffi::{Array, Result};

use super::Product;

/// `x / √(mean(x²) + eps) · weight` over the last dimension.
#[derive(Debug)]
pub(crate) struct RmsNorm {
    pub weight: Array,
    pub eps: f32,
    /// Whose kernels compute it.
    pub product: Product,
}

impl RmsNorm {
    /// `[…, size]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        self.product.rms_norm(x, &self.weight, self.eps)
    }
}
