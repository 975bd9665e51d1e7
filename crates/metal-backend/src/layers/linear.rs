//! A linear projection, quantised or not.

use mlx_ffi::{Array, Quantized, Result, ops, quantized_matmul};

/// `x wᵀ + b`.
#[derive(Debug)]
pub(crate) struct Linear {
    weight: Weight,
    /// `[out]`.
    bias: Option<Array>,
}

/// The matrix of a projection or an embedding.
#[derive(Debug)]
pub(crate) enum Weight {
    /// `[out, in]`.
    Dense(Array),
    /// The same, packed.
    Quantized(Quantized),
}

impl Weight {
    /// `x wᵀ` for `x` of `[…, in]`.
    pub fn project(&self, x: &Array) -> Result<Array> {
        match self {
            Weight::Dense(weight) => ops::matmul(x, &ops::swap_axes(weight, -1, -2)?),
            Weight::Quantized(weight) => quantized_matmul(x, weight),
        }
    }
}

impl Linear {
    /// A projection by `weight`, `[out, in]`, and `bias`, `[out]`.
    pub fn new(weight: Weight, bias: Option<Array>) -> Self {
        Linear { weight, bias }
    }

    /// `[…, in]` to `[…, out]`.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let y = self.weight.project(x)?;
        match &self.bias {
            None => Ok(y),
            Some(bias) => ops::add(&y, bias),
        }
    }
}
