//! A linear projection, quantised or not.

use mlx_ffi::{Array, Quantized, Result, ops};

use super::{Lora, Product};

/// `x wᵀ + b`, and what an adapter adds.
#[derive(Debug)]
pub(crate) struct Linear {
    weight: Weight,
    /// `[out]`.
    bias: Option<Array>,
    lora: Option<Lora>,
}

/// The matrix of a projection or an embedding, and what multiplies with it.
#[derive(Debug)]
pub(crate) struct Weight {
    pub matrix: Matrix,
    pub product: Product,
}

/// A matrix as the checkpoint has it.
#[derive(Debug)]
pub(crate) enum Matrix {
    /// `[out, in]`.
    Dense(Array),
    /// The same, packed.
    Quantized(Quantized),
}

impl Weight {
    /// `x wᵀ` for `x` of `[…, in]`.
    pub fn project(&self, x: &Array) -> Result<Array> {
        match &self.matrix {
            Matrix::Dense(weight) => self.product.dense(x, weight),
            Matrix::Quantized(weight) => self.product.quantized(x, weight),
        }
    }
}

impl Linear {
    /// A projection by `weight`, `[out, in]`, and `bias`, `[out]`.
    pub fn new(weight: Weight, bias: Option<Array>) -> Self {
        Linear { weight, bias, lora: None }
    }

    /// The same with an adapter, where there is one.
    pub fn with_lora(self, lora: Option<Lora>) -> Self {
        Linear { lora, ..self }
    }

    /// `[…, in]` to `[…, out]`.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let y = self.weight.project(x)?;
        let y = match &self.bias {
            None => y,
            Some(bias) => ops::add(&y, bias)?,
        };
        match &self.lora {
            None => Ok(y),
            Some(lora) => lora.project(x, &y),
        }
    }
}
