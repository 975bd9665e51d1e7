//! Residual blocks whose norms a style scales: those of prosody and decoder, and those of the
//! generator.

use mlx_ffi::cpu::AfterNorm;
use mlx_ffi::{Array, Dtype, Result, ops};

use super::layers::{AdaIn, Conv, Moves, settled};
use crate::error::Result as Read;
use crate::kernels::Kernels;
use crate::weights::Weights;

/// Places that a block makes of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rate {
    Same,
    Doubled,
}

/// Two convolutions behind norms, beside what comes in.
pub(super) struct StyledBlock {
    norms: [AdaIn; 2],
    convs: [Conv; 2],
    shortcut: Option<Conv>,
    /// Taps of each channel, `[3, channels]`, and its summand: they double the places.
    pool: Option<[Array; 2]>,
    kernels: Kernels,
}

impl StyledBlock {
    /// The module under `w` from so many channels to so many.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn load(
        w: &Weights,
        [input, output]: [i32; 2],
        style: i32,
        rate: Rate,
    ) -> Read<StyledBlock> {
        let conv = |name: &str, from| Conv::load(&w.at(name), [from, output, 3], Moves::same(3));
        let pool = (rate == Rate::Doubled).then(|| pool(&w.at("pool"), input)).transpose()?;
        let shortcut = (input != output)
            .then(|| Conv::load(&w.at("conv1x1"), [input, output, 1], Moves::same(1)));
        Ok(StyledBlock {
            norms: [
                AdaIn::load(&w.at("norm1"), input, style)?,
                AdaIn::load(&w.at("norm2"), output, style)?,
            ],
            convs: [conv("conv1", input)?, conv("conv2", output)?],
            shortcut: shortcut.transpose()?,
            pool,
            kernels: w.kernels(),
        })
    }

    /// `[1, n, channels]` to `[1, n, out]`, or twice the places.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn forward(&self, x: &Array, style: &Array) -> Result<Array> {
        const SLOPE: AfterNorm<'_> = AfterNorm::LeakyRelu(0.2);
        let mut y = self.norms[0].forward(x, style, SLOPE)?;
        if let Some(pool) = &self.pool {
            y = doubled(&y, pool)?;
        }
        let y = self.convs[0].forward(&y)?;
        let y = self.convs[1].forward(&self.norms[1].forward(&y, style, SLOPE)?)?;
        let mut beside = x.share()?;
        if self.pool.is_some() {
            let [_, n, channels] = x.dims()?;
            let each = ops::reshape(x, &[1, n, 1, channels])?;
            let each = ops::broadcast_to(&each, &[1, n, 2, channels])?;
            beside = ops::contiguous(&ops::reshape(&each, &[1, 2 * n, channels])?)?;
        }
        if let Some(shortcut) = &self.shortcut {
            beside = shortcut.forward(&beside)?;
        }
        let half = Array::scalar(std::f32::consts::FRAC_1_SQRT_2, Dtype::F32)?;
        let y = ops::multiply(&self.kernels.sum(&y, &beside)?, &half)?;
        y.eval()?;
        Ok(y)
    }
}

/// The transposed convolution of each channel under `w`.
fn pool(w: &Weights, channels: i32) -> Read<[Array; 2]> {
    let kernel = super::layers::folded(w, [channels, 1, 3])?;
    let taps = ops::swap_axes(&ops::reshape(&kernel, &[channels, 3])?, 0, 1)?;
    Ok([settled(&taps)?, w.tensor_f32("bias", &[channels])?])
}

/// Each second place is that of `x`, and the others lie between two.
fn doubled(x: &Array, [taps, bias]: &[Array; 2]) -> Result<Array> {
    let [_, n, channels] = x.dims()?;
    let tap = |at: i32| ops::slice_axis(taps, 0, at, at + 1);
    let behind = ops::zeros(&[1, 1, channels], x.dtype())?;
    let next = ops::concatenate(&[&ops::slice_axis(x, 1, 1, n)?, &behind], 1)?;
    let own = ops::multiply(x, &tap(1)?)?;
    let between = ops::add(&ops::multiply(x, &tap(2)?)?, &ops::multiply(&next, &tap(0)?)?)?;
    let both =
        ops::concatenate(&[&ops::expand_dims(&own, 2)?, &ops::expand_dims(&between, 2)?], 2)?;
    ops::contiguous(&ops::add(&ops::reshape(&both, &[1, 2 * n, channels])?, bias)?)
}

/// Three pairs of convolutions, the first of each with places ever farther apart, with waves for
/// activations.
pub(super) struct WaveBlock {
    pairs: Vec<[Waved; 2]>,
    kernels: Kernels,
}

/// A norm, a wave and a convolution.
struct Waved {
    norm: AdaIn,
    /// `[channels]`.
    factors: Array,
    conv: Conv,
}

impl WaveBlock {
    /// The module under `w`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn load(
        w: &Weights,
        [channels, taps]: [i32; 2],
        dilations: &[i32],
        style: i32,
    ) -> Read<WaveBlock> {
        let half = |of: i32, at: usize, dilation: i32| -> Read<Waved> {
            let factors = w.tensor_f32(&format!("alpha{of}.{at}"), &[1, channels, 1])?;
            let moves = Moves { stride: 1, dilation, around: dilation * ((taps - 1) / 2) };
            Ok(Waved {
                norm: AdaIn::load(&w.at(&format!("adain{of}.{at}")), channels, style)?,
                factors: settled(&ops::reshape(&factors, &[channels])?)?,
                conv: Conv::load(
                    &w.at(&format!("convs{of}.{at}")),
                    [channels, channels, taps],
                    moves,
                )?,
            })
        };
        let pair = |(at, dilation): (usize, &i32)| Ok([half(1, at, *dilation)?, half(2, at, 1)?]);
        let pairs = dilations.iter().enumerate().map(pair).collect::<Read<_>>()?;
        Ok(WaveBlock { pairs, kernels: w.kernels() })
    }

    /// `[1, n, channels]` to the same.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn forward(&self, x: &Array, style: &Array) -> Result<Array> {
        let mut x = x.share()?;
        for pair in &self.pairs {
            let mut y = x.share()?;
            for Waved { norm, factors, conv } in pair {
                y = conv.forward(&norm.forward(&y, style, AfterNorm::Snake(factors))?)?;
            }
            x = self.kernels.sum(&y, &x)?;
            x.eval()?;
        }
        Ok(x)
    }
}
