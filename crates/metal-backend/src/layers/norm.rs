//! Root-mean-square normalisation.

use mlx_ffi::{Array, Result};

use super::Product;

/// `x / √(mean(x²) + eps) · weight` over the last dimension.
#[derive(Debug)]
pub(crate) struct RmsNorm {
    weight: Array,
    eps: f32,
    product: Product,
}

impl RmsNorm {
    /// A norm by `weight`, `[size]`.
    pub fn new(weight: Array, eps: f32, product: Product) -> Self {
        RmsNorm { weight, eps, product }
    }

    /// `[…, size]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        self.product.rms_norm(x, &self.weight, self.eps)
    }
}
