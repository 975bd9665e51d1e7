//! A linear projection, quantised or not.

use mlx_ffi::{Array, Quantized, Result};

use super::{Activation, Lora, Order, Product, RmsNorm};

/// `x wᵀ + b`, and what an adapter adds.
#[derive(Debug)]
pub(crate) struct Linear {
    weight: Weight,
    /// `[out]`.
    bias: Option<Array>,
    lora: Option<Lora>,
}

/// What is done before and after a projection, in one operation with it where a device has one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Around<'a> {
    /// Before it.
    pub norm: Option<&'a RmsNorm>,
    /// What comes out of that norm, where it is known already.
    pub normed: Option<&'a Array>,
    /// What the result is added to.
    pub onto: Option<&'a Array>,
}

impl Around<'_> {
    /// What is projected in place of `x`.
    pub fn before(&self, x: &Array) -> Result<Array> {
        match (self.normed, self.norm) {
            (Some(normed), _) => normed.share(),
            (None, Some(norm)) => norm.forward(x),
            (None, None) => x.share(),
        }
    }

    /// What becomes of the result of `product`.
    pub fn after(&self, product: Product, y: Array) -> Result<Array> {
        match self.onto {
            None => Ok(y),
            Some(onto) => product.sum(onto, &y),
        }
    }
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
    /// `[out, in]`, or `[experts, out, in]`.
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

    /// `x wᵀ + b` for `bias` of `[out]`, where there is one.
    fn project_biased(&self, x: &Array, bias: Option<&Array>) -> Result<Array> {
        match (bias, &self.matrix) {
            (None, _) => self.project(x),
            (Some(bias), Matrix::Dense(weight)) => self.product.biased_dense(x, weight, bias),
            (Some(bias), Matrix::Quantized(_)) => self.product.sum(&self.project(x)?, bias),
        }
    }

    /// As [`project`](Self::project), with what is done around it.
    pub fn project_around(&self, x: &Array, around: Around<'_>) -> Result<Array> {
        match self.product.one_row(x, &self.matrix, None, None, around) {
            Some(y) => y,
            None => around.after(self.product, self.project(&around.before(x)?)?),
        }
    }

    /// As [`project`](Self::project) with a matrix for each of `indices`, `[t, e]`: `x` of
    /// `[t, 1 or e, in]` to `[t, e, out]`.
    pub fn gather(&self, x: &Array, indices: &Array, order: Order) -> Result<Array> {
        match &self.matrix {
            Matrix::Dense(weight) => self.product.gather_dense(x, weight, indices, order),
            Matrix::Quantized(weight) => self.product.gather_quantized(x, weight, indices, order),
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

    /// Its matrix.
    pub fn weight(&self) -> &Weight {
        &self.weight
    }

    /// `[out]`, where it has one.
    pub fn bias(&self) -> Option<&Array> {
        self.bias.as_ref()
    }

    /// Its adapter.
    pub fn lora(&self) -> Option<&Lora> {
        self.lora.as_ref()
    }

    /// `[…, in]` to `[…, out]`, with what is done around it.
    pub fn forward_around(&self, x: &Array, around: Around<'_>) -> Result<Array> {
        match self.at_once(x, None, around) {
            Some(y) => y,
            None => around.after(self.weight.product, self.forward(&around.before(x)?)?),
        }
    }

    /// What passes the gate of the result's first half, where there is one operation for all that.
    pub fn gated(
        &self,
        x: &Array,
        activation: Activation,
        around: Around<'_>,
    ) -> Option<Result<Array>> {
        self.at_once(x, Some(activation), Around { onto: None, ..around })
    }

    fn at_once(
        &self,
        x: &Array,
        gate: Option<Activation>,
        around: Around<'_>,
    ) -> Option<Result<Array>> {
        let Weight { matrix, product } = &self.weight;
        if self.lora.is_some() {
            return None;
        }
        product.one_row(x, matrix, self.bias.as_ref(), gate, around)
    }

    /// `[…, in]` to `[…, out]`.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let y = self.weight.project_biased(x, self.bias.as_ref())?;
        match &self.lora {
            None => Ok(y),
            Some(lora) => lora.project(x, &y),
        }
    }
}
