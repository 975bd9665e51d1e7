//! Alternating updates: several residual streams, of which a block computes one and guesses the
//! others (arXiv 2301.13310).

use mlx_ffi::{Array, Dtype, Result, ops};

use super::{LayerInput, Linear, RmsNorm, Workspace};
use crate::kernels::{Columns, Kernels};

/// How a block adds to several residual streams (Gemma 3n). All of them lie side by side in one,
/// `[b, l, streams · hidden_size]`.
#[derive(Debug)]
pub(crate) struct AltUp {
    /// Streams that there are.
    pub streams: i32,
    /// The one that is computed.
    pub active: i32,
    /// Before the router.
    pub router_norm: RmsNorm,
    /// `hidden_size` to a value for each stream.
    pub router: Linear,
    /// The router's values to the part of each stream in the guess of each, `[streams², streams]`
    /// F32.
    pub prediction: Array,
    /// The router's values to the part of each stream in the correction, `[streams, streams]` F32.
    pub correction: Array,
    /// A factor of the computed stream, `[hidden_size]`, before the layer's own input is combined
    /// with it.
    pub output_scale: Option<Array>,
    pub laurel: Laurel,
    /// Makes a term of the layer's own input. All streams but the first get it.
    pub input: LayerInput,
}

/// A projection of low rank beside attention: `x + norm(right(left(x)))`.
#[derive(Debug)]
pub(crate) struct Laurel {
    pub left: Linear,
    pub right: Linear,
    pub norm: RmsNorm,
    /// Whose kernels add.
    pub kernels: Kernels,
}

impl AltUp {
    /// All streams, `[b, l, streams · hidden_size]`, as they are expected behind the block:
    /// `[b, l, streams, hidden_size]`.
    pub fn predict(&self, h: &Array) -> Result<Array> {
        let [b, l, all] = h.dims()?;
        let (n, dtype) = (self.streams, h.dtype());
        let streams = ops::reshape(h, &[b, l, n, all / n])?;
        let seen = self.routed(&self.active(&streams)?)?;
        let parts = ops::matmul(&seen, &ops::swap_axes(&self.prediction, 0, 1)?)?;
        let parts = ops::reshape(&parts, &[b, l, n, n])?;
        let streams = ops::astype(&streams, Dtype::F32)?;
        let guess = ops::add(&ops::matmul(&parts, &streams)?, &streams)?;
        ops::astype(&guess, dtype)
    }

    /// The stream that is computed, of `[b, l, streams, hidden_size]`: `[b, l, hidden_size]`.
    pub fn active(&self, streams: &Array) -> Result<Array> {
        ops::squeeze(&ops::slice_axis(streams, 2, self.active, self.active + 1)?, 2)
    }

    /// The `predicted` streams, `[b, l, streams, hidden_size]`, of which `h`, `[b, l,
    /// hidden_size]`, is what the computed one has become, with the layer's own `input`: `[b, l,
    /// streams · hidden_size]`.
    pub fn correct(&self, predicted: &Array, h: &Array, input: Option<&Columns>) -> Result<Array> {
        let [b, l, n, hidden] = predicted.dims()?;
        let parts = ops::matmul(&self.routed(h)?, &ops::swap_axes(&self.correction, 0, 1)?)?;
        let parts = ops::add(&parts, &Array::scalar(1.0, Dtype::F32)?)?;
        let news = ops::subtract(h, &self.active(predicted)?)?;
        let news = ops::multiply(&ops::expand_dims(&news, 2)?, &ops::expand_dims(&parts, -1)?)?;
        let corrected = ops::astype(&ops::add(&news, predicted)?, h.dtype())?;
        let active = self.active(&corrected)?;
        let active = match &self.output_scale {
            None => active,
            Some(scale) => ops::multiply(&active, scale)?,
        };
        let added = ops::expand_dims(&self.input.forward(&active, input)?, 2)?;
        let first = ops::slice_axis(&corrected, 2, 0, 1)?;
        let others = ops::add(&ops::slice_axis(&corrected, 2, 1, n)?, &added)?;
        ops::reshape(&ops::concatenate(&[&first, &others], 2)?, &[b, l, n * hidden])
    }

    /// The router's values for `x`, `[b, l, hidden_size]`: `[b, l, streams]` F32.
    fn routed(&self, x: &Array) -> Result<Array> {
        let size = x.shape().last().copied().unwrap_or(1);
        let part = Array::scalar(1.0 / size as f32, x.dtype())?;
        let seen = ops::multiply(&self.router_norm.forward(x)?, &part)?;
        ops::tanh(&ops::astype(&self.router.forward(&seen)?, Dtype::F32)?)
    }

    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        let Laurel { left, right, .. } = &self.laurel;
        let laurel = left.workspace(dtype).then(right.workspace(dtype));
        self.router.workspace(dtype).then(laurel).then(self.input.workspace(dtype))
    }
}

impl Laurel {
    /// The stream `h` with what attention adds to it, `mixed`, and what this adds for `x`, the
    /// stream's norm, over the root of 2; all `[b, l, hidden_size]`.
    pub fn join(&self, h: &Array, mixed: &Array, x: &Array) -> Result<Array> {
        let beside = self.norm.forward(&self.right.forward(&self.left.forward(x)?)?)?;
        let beside = self.kernels.sum(x, &beside)?;
        let sum = self.kernels.sum(&self.kernels.sum(h, mixed)?, &beside)?;
        ops::multiply(&sum, &Array::scalar(0.5_f32.sqrt(), sum.dtype())?)
    }
}
