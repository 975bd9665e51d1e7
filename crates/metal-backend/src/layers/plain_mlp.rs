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
    /// The parabola's factor.
    parabola: Array,
    /// The exponential's factor.
    exponential: Array,
    /// The slope at 0.
    slope: Array,
    /// The number nearest to 0 from below that the exponential is given.
    eps: Array,
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
    /// The activation of a checkpoint's parameters: `alpha_p` and `alpha_n`, `[1]` or scalars, and
    /// the scalars `beta` and `eps`.
    pub fn new([alpha_p, alpha_n, beta, eps]: [Array; 4]) -> Result<Xielu> {
        let wide = |array: &Array| ops::astype(array, Dtype::F32);
        // Where only shapes are looked at, tensors have no values.
        let factor = |alpha: &Array| match alpha.shape() {
            [0] => wide(alpha),
            _ => softplus(&wide(alpha)?),
        };
        let slope = wide(&beta)?;
        let own = Xielu {
            parabola: factor(&alpha_p)?,
            exponential: ops::add(&slope, &factor(&alpha_n)?)?,
            eps: wide(&eps)?,
            slope,
        };
        [&own.parabola, &own.exponential, &own.eps, &own.slope]
            .into_iter()
            .try_for_each(Array::eval)?;
        Ok(own)
    }

    /// The activation of `x`, computed in F32.
    fn of(&self, x: &Array) -> Result<Array> {
        let values = ops::astype(x, Dtype::F32)?;
        let one = Array::scalar(1.0, Dtype::F32)?;
        let zero = Array::scalar(0.0, Dtype::F32)?;
        let line = ops::multiply(&self.slope, &values)?;
        let above = ops::multiply(&self.parabola, &ops::multiply(&values, &values)?)?;
        let grown = ops::subtract(&ops::exp(&ops::minimum(&values, &self.eps)?)?, &one)?;
        let below = ops::multiply(&ops::subtract(&grown, &values)?, &self.exponential)?;
        let is_above = ops::greater(&values, &zero)?;
        let y = ops::add(&ops::where_(&is_above, &above, &below)?, &line)?;
        ops::astype(&y, x.dtype())
    }
}
