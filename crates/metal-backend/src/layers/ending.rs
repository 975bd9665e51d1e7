//! What a block does to the residual stream behind its two halves.

use mlx_ffi::{Array, Dtype, Result, ops};

use super::{Linear, RmsNorm, Workspace};
use crate::kernels::{Activation, Columns, Kernels};

/// What a block does to the residual stream behind its two halves; by default, nothing.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// What is made of the layer's own input.
    pub input: Option<LayerInput>,
    /// What the stream is multiplied with, `[1]`.
    pub scale: Option<Array>,
}

/// `norm(projection(activation(gate(x)) · input))`, which is added to the stream (Gemma 3n and 4).
#[derive(Debug)]
pub(crate) struct LayerInput {
    /// `hidden_size` to the input's size.
    pub gate: Linear,
    /// The input's size to `hidden_size`.
    pub projection: Linear,
    pub norm: RmsNorm,
    pub activation: Activation,
    /// Whose kernels compute the gate.
    pub kernels: Kernels,
}

impl Ending {
    /// Whether it leaves the stream as it is.
    pub fn is_nothing(&self) -> bool {
        self.input.is_none() && self.scale.is_none()
    }

    /// `h`, `[b, l, hidden_size]`, to the same. `input` is the layer's own, `[b, l, size]`.
    pub fn forward(&self, h: Array, input: Option<&Array>) -> Result<Array> {
        let h = match &self.input {
            None => h,
            Some(own) => own.kernels.sum(&h, &own.forward(&h, input)?)?,
        };
        match &self.scale {
            None => Ok(h),
            Some(scale) => ops::multiply(&h, scale),
        }
    }

    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.input.as_ref().map_or(Workspace::default(), |input| input.workspace(dtype))
    }
}

impl LayerInput {
    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.gate.workspace(dtype).then(self.projection.workspace(dtype))
    }

    /// What is added to the stream, for `x`, `[b, l, hidden_size]`, and the layer's own `input`,
    /// `[b, l, size]`: `[b, l, hidden_size]`.
    pub fn forward(&self, x: &Array, input: Option<&Array>) -> Result<Array> {
        let input = input.ok_or_else(|| mlx_ffi::Error::new("a layer misses its own input"))?;
        let (gate, input) = (Columns::all(self.gate.forward(x)?), Columns::all(input.share()?));
        let inner = self.kernels.gated(self.activation, &gate, &input)?;
        self.norm.forward(&self.projection.forward(&inner)?)
    }
}
