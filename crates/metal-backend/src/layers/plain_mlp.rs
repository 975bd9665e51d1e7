//! The feed-forward network without a gate.

use mlx_ffi::{Array, Dtype, Result, ops};

use super::{Fusion, Linear, Workspace};
use crate::kernels::{Activation, softplus};

/// `down(act(up(x)))`.
#[derive(Debug)]
pub(crate) struct PlainMlp {
    /// `hidden_size` to `intermediate_size`.
    pub up: Linear,
    /// `intermediate_size` to `hidden_size`.
    pub down: Linear,
    pub activation: PlainActivation,
}

/// The activation of a network without a gate.
#[derive(Debug)]
pub(crate) enum PlainActivation {
    /// One that gates have too.
    Known(Activation),
    /// The expanded integral of the exponential linear unit, whose slopes are learned.
    Xielu(Box<Xielu>),
}

/// xIELU: a parabola above 0, and below it an exponential beside a line.
#[derive(Debug)]
pub(crate) struct Xielu {
    /// `[1]` or a scalar: the parabola's factor is its softplus.
    pub alpha_p: Array,
    /// `[1]` or a scalar: the exponential's factor is `beta` and its softplus.
    pub alpha_n: Array,
    /// A scalar: the slope at 0.
    pub beta: Array,
    /// A scalar: what is nearer to 0 from below counts as this in the exponential.
    pub eps: Array,
}

impl PlainMlp {
    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.up.workspace(dtype).then(self.down.workspace(dtype))
    }

    /// `[b, l, hidden_size]` to the same, with its `fusion`.
    pub fn forward(&self, x: &Array, fusion: Fusion<'_>) -> Result<Array> {
        let inner = match &self.activation {
            PlainActivation::Known(activation) => {
                self.up.activated(&fusion.prologue(x)?, *activation)?
            }
            PlainActivation::Xielu(xielu) => {
                xielu.of(&self.up.forward_fused(x, fusion.only_prologue())?)?
            }
        };
        self.down.forward_fused(&inner, fusion.only_epilogue())
    }
}

impl Xielu {
    /// The activation of `x`, computed in F32.
    fn of(&self, x: &Array) -> Result<Array> {
        let wide = |array: &Array| ops::astype(array, Dtype::F32);
        let (values, beta, eps) = (wide(x)?, wide(&self.beta)?, wide(&self.eps)?);
        let one = Array::scalar(1.0, Dtype::F32)?;
        let zero = Array::scalar(0.0, Dtype::F32)?;
        let alpha_p = softplus(&wide(&self.alpha_p)?)?;
        let alpha_n = ops::add(&beta, &softplus(&wide(&self.alpha_n)?)?)?;
        let line = ops::multiply(&beta, &values)?;
        let above = ops::multiply(&alpha_p, &ops::multiply(&values, &values)?)?;
        let grown = ops::subtract(&ops::exp(&ops::minimum(&values, &eps)?)?, &one)?;
        let below = ops::multiply(&ops::subtract(&grown, &values)?, &alpha_n)?;
        let is_above = ops::greater(&values, &zero)?;
        let y = ops::add(&ops::where_(&is_above, &above, &below)?, &line)?;
        ops::astype(&y, x.dtype())
    }
}
