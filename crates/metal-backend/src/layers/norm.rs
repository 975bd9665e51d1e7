//! Root-mean-square normalisation.

use mlx_ffi::{Array, Result};

use crate::kernels::{Kernels, Norm};

/// `x / √(mean(x²) + eps) · weight` over the last dimension.
#[derive(Debug)]
pub(crate) struct RmsNorm {
    pub weight: Array,
    pub eps: f32,
    /// Whose kernels compute it.
    pub kernels: Kernels,
}

impl RmsNorm {
    /// `[…, size]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        self.kernels.rms_norm(x, &self.weight, self.eps)
    }

    /// What a kernel needs of it.
    pub fn weights(&self) -> Norm<'_> {
        Norm { weight: &self.weight, eps: self.eps }
    }
}
