//! The forms of norms.

use crate::error::Result;
use crate::layers::{Around, RmsNorm};
use crate::weights::Weights;

/// The form of a model's norms and of their weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Norms {
    /// Root-mean-square norms.
    Rms,
    /// Root-mean-square norms whose weights are stored as their distance from 1 (Gemma).
    OffsetRms,
    /// Layer norms.
    Layer { has_bias: bool },
    /// Layer norms with biases, whose weights are stored as their distance from 1 (Nemotron).
    OffsetLayer,
    /// Layer norms without weights (OLMo).
    PlainLayer,
}

impl Norms {
    /// The norm `name` over `size` values.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn norm(self, w: &Weights, name: &str, size: i32, eps: f32) -> Result<RmsNorm> {
        let bias = || w.at(name).tensor("bias", &[size]);
        match self {
            Norms::Rms => w.rms_norm(name, size, eps),
            Norms::OffsetRms => w.offset_rms_norm(name, size, eps),
            Norms::Layer { has_bias } => {
                let norm = w.rms_norm(name, size, eps)?;
                let bias = has_bias.then(bias).transpose()?;
                Ok(RmsNorm { bias, around: Around::Mean, ..norm })
            }
            Norms::OffsetLayer => {
                let norm = w.offset_rms_norm(name, size, eps)?;
                Ok(RmsNorm { bias: Some(bias()?), around: Around::Mean, ..norm })
            }
            Norms::PlainLayer => Ok(w.plain_rms_norm(size, eps)?.around(Around::Mean)),
        }
    }

    /// The norms `name` of `count` heads, over `size` values of each by weights of its own: rows of
    /// one matrix, or a module of `norms` for each.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn of_heads(
        self,
        w: &Weights,
        name: &str,
        [count, size]: [i32; 2],
        eps: f32,
    ) -> Result<RmsNorm> {
        let around = match self {
            Norms::Rms | Norms::OffsetRms => Around::Zero,
            Norms::Layer { .. } | Norms::OffsetLayer | Norms::PlainLayer => Around::Mean,
        };
        let weight = w.at(name).matrix_or_rows("norms", [count, size])?;
        Ok(RmsNorm { weight, bias: None, eps, around, kernels: w.kernels() })
    }
}
