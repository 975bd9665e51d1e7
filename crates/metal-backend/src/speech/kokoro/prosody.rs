//! How phonemes are said: how long each one is, its pitch and its loudness.

use mlx_ffi::{Array, Dtype, Indices, Result, ops};

use super::blocks::{Rate, StyledBlock};
use super::layers::{Conv, EPS, Lstm, Moves, scales, settled};
use crate::error::Result as Read;
use crate::kernels::{Kernels, leaky_relu};
use crate::layers::{LayerNorm, Linear};
use crate::weights::Weights;

/// The sizes of phonemes' states, which `config.json` has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Values of a state.
    pub hidden: i32,
    /// Values of each half of a style.
    pub style: i32,
    /// Layers of each encoder.
    pub layers: i32,
    /// The most frames of a phoneme.
    pub most_frames: i32,
    /// Ids of phonemes.
    pub vocab: i32,
}

/// The encoder of what phonemes sound like.
pub(super) struct TextEncoder {
    embedding: Array,
    layers: Vec<(Conv, LayerNorm)>,
    lstm: Lstm,
}

impl TextEncoder {
    /// The modules under `w`, with kernels of so many taps.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn load(w: &Weights, sizes: Sizes, taps: i32) -> Read<TextEncoder> {
        let Sizes { hidden, vocab, layers, .. } = sizes;
        let layer = |at: i32| {
            let w = w.at(&format!("cnn.{at}"));
            let conv = Conv::load(&w.at("0"), [hidden, hidden, taps], Moves::same(taps))?;
            Ok((conv, w.layer_norm("1", hidden, EPS)?))
        };
        Ok(TextEncoder {
            embedding: w.tensor_f32("embedding.weight", &[vocab, hidden])?,
            layers: (0..layers).map(layer).collect::<Read<_>>()?,
            lstm: Lstm::load(&w.at("lstm"), hidden, hidden)?,
        })
    }

    /// Ids to states, `[1, n, hidden]`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn forward(&self, ids: &Indices) -> Result<Array> {
        let mut x = ops::expand_dims(&ops::take(&self.embedding, ids, 0)?, 0)?;
        for (conv, norm) in &self.layers {
            x = leaky_relu(&norm.forward(&conv.forward(&x)?)?, 0.2)?;
        }
        self.lstm.forward(&x)
    }
}

/// The predictor of lengths, pitch and loudness.
pub(super) struct Prosody {
    /// A recurrence, and what a style makes of its states.
    layers: Vec<(Lstm, Linear)>,
    lstm: Lstm,
    lengths: Linear,
    shared: Lstm,
    pitch: Curve,
    loudness: Curve,
    /// Ones and zeros, for a norm without factors of its own.
    plain: LayerNorm,
}

/// A number for each half of a frame.
struct Curve {
    blocks: Vec<StyledBlock>,
    end: Conv,
}

impl Curve {
    /// The blocks `name` under `w`.
    fn load(w: &Weights, name: &str, sizes: Sizes) -> Read<Curve> {
        let Sizes { hidden, style, .. } = sizes;
        let half = hidden / 2;
        let widths =
            [([hidden; 2], Rate::Same), ([hidden, half], Rate::Doubled), ([half; 2], Rate::Same)];
        let blocks = widths.into_iter().enumerate().map(|(at, (widths, rate))| {
            StyledBlock::load(&w.at(&format!("{name}.{at}")), widths, style, rate)
        });
        let end = w.at(&format!("{name}_proj"));
        let end = Conv::load(&end, [half, 1, 1], Moves::same(1))?;
        Ok(Curve { blocks: blocks.collect::<Read<_>>()?, end })
    }

    fn forward(&self, x: &Array, style: &Array) -> Result<Array> {
        let mut x = x.share()?;
        for block in &self.blocks {
            x = block.forward(&x, style)?;
        }
        self.end.forward(&x)
    }
}

impl Prosody {
    /// The modules under `w`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn load(w: &Weights, sizes: Sizes) -> Read<Prosody> {
        let Sizes { hidden, style, layers, most_frames, .. } = sizes;
        let both = hidden + style;
        // Recurrences and norms take turns in one list.
        let layer = |at: i32| {
            let part = |at: i32| w.at(&format!("text_encoder.lstms.{at}"));
            let lstm = Lstm::load(&part(2 * at), both, hidden)?;
            Ok((lstm, part(2 * at + 1).linear("fc", style, 2 * hidden, true)?))
        };
        Ok(Prosody {
            layers: (0..layers).map(layer).collect::<Read<_>>()?,
            lstm: Lstm::load(&w.at("lstm"), both, hidden)?,
            lengths: w.linear("duration_proj.linear_layer", hidden, most_frames, true)?,
            shared: Lstm::load(&w.at("shared"), both, hidden)?,
            pitch: Curve::load(w, "F0", sizes)?,
            loudness: Curve::load(w, "N", sizes)?,
            plain: plain(hidden, w.kernels())?,
        })
    }

    /// States of phonemes, `[1, n, hidden]`, to those that know how they are said, the style behind
    /// each: `[1, n, hidden + style]`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn encode(&self, states: &Array, style: &Array) -> Result<Array> {
        let [_, n, _] = states.dims()?;
        let [_, size] = style.dims()?;
        let each = ops::broadcast_to(&ops::expand_dims(style, 0)?, &[1, n, size])?;
        let mut x = ops::concatenate(&[states, &each], 2)?;
        for (lstm, linear) in &self.layers {
            let normed = self.plain.forward(&lstm.forward(&x)?)?;
            let [factors, summands] = scales(linear, style)?;
            let styled = ops::add(&ops::multiply(&normed, &factors)?, &summands)?;
            x = ops::concatenate(&[&styled, &each], 2)?;
        }
        Ok(x)
    }

    /// Frames of each phoneme at `speed`, at least one, from [`encode`](Self::encode)'s states.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn lengths(&self, x: &Array, speed: f32) -> Result<Vec<u32>> {
        let parts = ops::sigmoid(&self.lengths.forward(&self.lstm.forward(x)?)?)?;
        let frames = ops::contiguous(&ops::sum(&parts, 2, false)?)?.to_vec_f32()?;
        if frames.iter().any(|frames| !frames.is_finite()) {
            return Err(mlx_ffi::Error::new("lengths of phonemes are no numbers"));
        }
        Ok(frames.iter().map(|frames| (frames / speed).round_ties_even().max(1.0) as u32).collect())
    }

    /// Pitch and loudness of each half of a frame, `[1, 2 n, 1]` each.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn curves(&self, frames: &Array, style: &Array) -> Result<[Array; 2]> {
        let x = self.shared.forward(frames)?;
        Ok([self.pitch.forward(&x, style)?, self.loudness.forward(&x, style)?])
    }
}

/// A norm of so many values, whose factors are 1.
fn plain(size: i32, kernels: Kernels) -> Read<LayerNorm> {
    let zeros = ops::zeros(&[size], Dtype::F32)?;
    let weight = settled(&ops::add(&zeros, &Array::scalar(1.0, Dtype::F32)?)?)?;
    Ok(LayerNorm { weight, bias: Some(settled(&zeros)?), eps: EPS, kernels })
}
