//! A linear projection, quantised or not.

use mlx_ffi::{Array, Dtype, Result};

use super::{Fusion, Lora, Together, Weight, Workspace};
use crate::kernels::{Activation, GemvFusion, Kernels};

/// `x wᵀ + b`, and what an adapter adds.
#[derive(Debug)]
pub(crate) struct Linear {
    weight: Weight,
    /// `[out]`.
    bias: Option<Array>,
    lora: Option<Lora>,
    together: Together,
}

impl Linear {
    /// A projection by `weight`, `[out, in]`, and `bias`, `[out]`.
    pub fn new(weight: Weight, bias: Option<Array>) -> Self {
        Linear { weight, bias, lora: None, together: Together::Nothing }
    }

    /// The layer with an adapter, where there is one.
    pub fn with_lora(self, lora: Option<Lora>) -> Self {
        Linear { lora, ..self }
    }

    /// The layer with another bias, `[out]`.
    pub fn with_bias(self, bias: Array) -> Self {
        Linear { bias: Some(bias), ..self }
    }

    /// The layer where it is a part of one that ranks compute together. A bias is that of all of
    /// it.
    pub fn together(self, together: Together) -> Self {
        Linear { together, ..self }
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

    /// `[…, in]` to `[…, out]`, with its `fusion`.
    pub fn forward_fused(&self, x: &Array, fusion: Fusion<'_>) -> Result<Array> {
        match self.at_once(x, [None; 2], fusion) {
            Some(y) => y,
            None => fusion.epilogue(self.weight.kernels, self.forward(&fusion.prologue(x)?)?),
        }
    }

    /// The second half of the result, gated by the first. `None` unless one operation makes all
    /// that.
    pub fn gated(
        &self,
        x: &Array,
        activation: Activation,
        fusion: Fusion<'_>,
    ) -> Option<Result<Array>> {
        self.at_once(x, [Some(activation), None], fusion.only_prologue())
    }

    /// `activation` of what `x` becomes.
    pub fn activated(&self, x: &Array, activation: Activation) -> Result<Array> {
        match self.at_once(x, [None, Some(activation)], Fusion::default()) {
            Some(y) => y,
            None => self.weight.kernels.activated(activation, &self.forward(x)?),
        }
    }

    fn at_once(
        &self,
        x: &Array,
        [gate, activation]: [Option<Activation>; 2],
        fusion: Fusion<'_>,
    ) -> Option<Result<Array>> {
        if self.lora.is_some() || !self.together.is_nothing() {
            return None;
        }
        let (row, gemv) = fusion.of_gemv(x)?;
        let gemv = GemvFusion { bias: self.bias.as_ref(), gate, activation, ..gemv };
        self.weight.kernels.gemv(row, &self.weight.matrix, gemv)
    }

    /// Bytes that its product takes beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.weight.workspace(dtype, self.lora.as_ref().map_or(0, Lora::row_bytes))
    }

    /// `[…, in]` to `[…, out]`.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        // The bias is added once, not by each rank.
        let sums = matches!(self.together, Together::Sum(_));
        let bias = self.bias.as_ref().filter(|_| !sums);
        let y = match self.weight.kernels {
            // MLX's product of one row could not be captured.
            Kernels::Cuda if sums => self.weight.project_fused(x, Fusion::default())?,
            _ => self.weight.project_biased(x, bias)?,
        };
        let y = match &self.lora {
            None => y,
            Some(lora) => lora.project(x, &y)?,
        };
        let y = self.together.all(y)?;
        match self.bias.as_ref().filter(|_| sums) {
            None => Ok(y),
            Some(bias) => self.weight.kernels.sum(&y, bias),
        }
    }
}
