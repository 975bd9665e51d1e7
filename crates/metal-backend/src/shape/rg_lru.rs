//! Gated linear recurrent units built from a config.

use mlx_ffi::{Array, Dtype, ops};

use super::Shape;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::{Activation, softplus};
use crate::layers::{HeadGate, RgLru};
use crate::weights::Weights;

/// How fast a channel decays at most (arXiv 2402.19427, equation 6).
const DECAY: f32 = -8.0;

/// The sizes of a gated linear recurrent unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RgLruSizes {
    /// Channels.
    width: i32,
    /// Heads of its gates.
    heads: i32,
    /// Positions that a position's convolution sees, itself included.
    taps: i32,
}

impl RgLruSizes {
    /// Reads `config` under the names of Recurrent Gemma.
    ///
    /// # Errors
    /// A key that is wrong; heads that do not divide.
    pub fn read(config: &Config, shape: &Shape) -> Result<RgLruSizes> {
        let width = config.opt_size("lru_width")?.unwrap_or(shape.hidden_size);
        let heads = shape.num_attention_heads;
        let taps = config.opt_size("conv1d_width")?.unwrap_or(4);
        if width % heads != 0 || taps > 64 || width > i32::MAX / 64 {
            return Err(Error::model(format!(
                "config.json: `lru_width` {width} is no multiple of `num_attention_heads` {heads}, or it or `conv1d_width` {taps} is too large"
            )));
        }
        Ok(RgLruSizes { width, heads, taps })
    }
}

/// `value` as bf16 has it.
///
/// # Errors
/// Those of MLX.
pub(crate) fn rounded_to_bf16(value: f64) -> Result<f64> {
    let rounded = ops::astype(&Array::scalar(value as f32, Dtype::F32)?, Dtype::Bf16)?;
    Ok(f64::from(ops::astype(&rounded, Dtype::F32)?.item_f32()?))
}

impl Shape {
    /// The recurrent block under `w`, whose result is gated by `activation`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn rg_lru(&self, w: &Weights, sizes: RgLruSizes, activation: Activation) -> Result<RgLru> {
        let RgLruSizes { width, heads, taps } = sizes;
        let hidden = self.hidden_size;
        let unit = w.at("rg_lru");
        let gate = |name: &str| -> Result<HeadGate> {
            let bias = unit.tensor_f32(&format!("{name}_bias"), &[heads, width / heads])?;
            let weight = unit.turned_heads(&format!("{name}_weight"), [heads, width / heads])?;
            Ok(HeadGate {
                weight,
                bias: if w.describes() { bias } else { ops::reshape(&bias, &[width])? },
            })
        };
        let rate = unit.tensor_f32("recurrent_param", &[width])?;
        // Placeholders have no values to compute with.
        let log_decay = match w.describes() {
            true => rate,
            false => ops::multiply(&softplus(&rate)?, &Array::scalar(DECAY, Dtype::F32)?)?,
        };
        Ok(RgLru {
            heads,
            sizes: [taps, width],
            gate_proj: w.linear("linear_y", hidden, width, true)?,
            activation,
            in_proj: w.linear("linear_x", hidden, width, true)?,
            convolution: w.depthwise("conv_1d.weight", width, taps)?,
            bias: w.tensor("conv_1d.bias", &[width])?,
            input_gate: gate("input_gate")?,
            decay_gate: gate("recurrent_gate")?,
            log_decay,
            out_proj: w.linear("linear_out", width, hidden, true)?,
            kernels: w.kernels(),
        })
    }
}
