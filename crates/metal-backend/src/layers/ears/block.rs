//! A block of a conformer: attention and a short convolution between two halves of a feed-forward
//! network.

use mlx_ffi::{Array, Result, ops};

use super::attention::EarAttention;
use crate::kernels::{Activation, Kernels};
use crate::layers::{ClippedLinear, RmsNorm};

/// A block of a conformer.
#[derive(Debug)]
pub(crate) struct EarBlock {
    pub networks: [EarNetwork; 2],
    /// Before and behind attention.
    pub attention_norms: [RmsNorm; 2],
    pub attention: EarAttention,
    pub convolution: LightConvolution,
    pub norm: RmsNorm,
    /// Values are held this near to 0 where they might overflow.
    pub limit: f32,
}

/// Half of a feed-forward network: what it makes is normed, and a part of it is added.
#[derive(Debug)]
pub(crate) struct EarNetwork {
    pub norms: [RmsNorm; 2],
    pub linears: [ClippedLinear; 2],
    pub activation: Activation,
    /// The part that is added.
    pub part: f32,
}

/// A gated convolution of each value over the places before its own.
#[derive(Debug)]
pub(crate) struct LightConvolution {
    pub norm: RmsNorm,
    /// To values and their gates.
    pub start: ClippedLinear,
    /// `[taps, hidden_size]`, the tap of the place itself last.
    pub taps: Array,
    pub inner_norm: RmsNorm,
    pub activation: Activation,
    pub end: ClippedLinear,
}

/// `x` with its values between `-limit` and `limit`.
fn held(x: &Array, limit: f32) -> Result<Array> {
    let bound = |limit: f32| Array::scalar(limit.clamp(-most(x), most(x)), x.dtype());
    ops::minimum(&ops::maximum(x, &bound(-limit)?)?, &bound(limit)?)
}

/// The largest number of the type of `x`.
fn most(x: &Array) -> f32 {
    match x.dtype() {
        mlx_ffi::Dtype::F16 => 65_504.0,
        // As bfloat16 has it.
        _ => 3.389_531_4e38,
    }
}

impl EarNetwork {
    fn forward(&self, x: &Array, limit: f32, kernels: Kernels) -> Result<Array> {
        let ([before, behind], [into, out]) = (&self.norms, &self.linears);
        let h = into.forward(&before.forward(&held(x, limit)?)?)?;
        let h = out.forward(&kernels.activated(self.activation, &h)?)?;
        let h = behind.forward(&held(&h, limit)?)?;
        ops::add(x, &ops::multiply(&h, &Array::scalar(self.part, x.dtype())?)?)
    }
}

impl LightConvolution {
    fn forward(&self, x: &Array, limit: f32, kernels: Kernels) -> Result<Array> {
        let both = self.start.forward(&self.norm.forward(x)?)?;
        let [_, n, size] = x.dims()?;
        let part = |at: i32| ops::slice_axis(&both, 2, at * size, (at + 1) * size);
        let gated = ops::multiply(&part(0)?, &ops::sigmoid(&part(1)?)?)?;
        let [taps, _] = self.taps.dims()?;
        let padding = ops::zeros(&[1, taps - 1, size], gated.dtype())?;
        let gated = ops::concatenate(&[&padding, &gated], 1)?;
        let mut sum: Option<Array> = None;
        for tap in 0..taps {
            let weight = ops::slice_axis(&self.taps, 0, tap, tap + 1)?;
            let of_tap = ops::multiply(&ops::slice_axis(&gated, 1, tap, tap + n)?, &weight)?;
            sum = Some(match sum {
                None => of_tap,
                Some(sum) => ops::add(&sum, &of_tap)?,
            });
        }
        let sum = sum.ok_or_else(|| mlx_ffi::Error::new("a convolution has no taps"))?;
        let h = self.inner_norm.forward(&held(&sum, limit)?)?;
        ops::add(x, &self.end.forward(&kernels.activated(self.activation, &h)?)?)
    }
}

impl EarBlock {
    /// `[1, n, hidden_size]` to the same.
    pub fn forward(&self, x: &Array, kernels: Kernels) -> Result<Array> {
        let (limit, [before, behind]) = (self.limit, &self.attention_norms);
        let x = self.networks[0].forward(x, limit, kernels)?;
        let mixed = self.attention.forward(&before.forward(&held(&x, limit)?)?)?;
        let x = ops::add(&x, &behind.forward(&held(&mixed, limit)?)?)?;
        let x = self.convolution.forward(&x, limit, kernels)?;
        let x = self.networks[1].forward(&x, limit, kernels)?;
        self.norm.forward(&held(&x, limit)?)
    }

    /// The most values that are held at once for so many places.
    pub fn values(&self, places: u64) -> u64 {
        let hidden = self.norm.weight.size() as u64;
        // The network's inside is four times as wide; with its input, its result and their sums.
        places * 12 * hidden + self.attention.values(places, hidden)
    }
}
