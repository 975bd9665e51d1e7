//! The sizes of encoders, and attention to a whole text built from them.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Kernels;
use crate::layers::{Attention, AttentionConfig, Linear, OutputGate, QkNorms, Qkv, Sharing};
use crate::weights::{Linears, Weights};

use super::MAX_LAYERS;

/// The sizes of an encoder, under the names of `config.json`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncoderSizes {
    pub hidden_size: i32,
    pub intermediate_size: i32,
    pub num_attention_heads: i32,
    pub head_dim: i32,
}

impl EncoderSizes {
    /// The sizes that `config` states.
    ///
    /// # Errors
    /// A key that is missing or wrong; heads that do not divide; too many layers.
    pub fn read(config: &Config) -> Result<EncoderSizes> {
        let hidden_size = config.size("hidden_size")?;
        let num_attention_heads = config.size("num_attention_heads")?;
        if hidden_size % num_attention_heads != 0 {
            return Err(Error::model(format!(
                "config.json: `hidden_size` {hidden_size} is no multiple of `num_attention_heads` {num_attention_heads}"
            )));
        }
        let layers = config.size("num_hidden_layers")?;
        if layers > MAX_LAYERS {
            return Err(Error::model(format!(
                "config.json: `num_hidden_layers` is {layers}, at most {MAX_LAYERS} are supported"
            )));
        }
        let head_dim = hidden_size / num_attention_heads;
        let intermediate_size = config.size("intermediate_size")?;
        Ok(EncoderSizes { hidden_size, intermediate_size, num_attention_heads, head_dim })
    }

    /// Attention by these projections in which each position sees all of its text.
    pub fn attention(&self, qkv: Linears<3>, o_proj: Linear, kernels: Kernels) -> Attention {
        let EncoderSizes { hidden_size: dim, num_attention_heads, head_dim, .. } = *self;
        Attention {
            config: AttentionConfig {
                n_heads: num_attention_heads,
                n_kv_heads: num_attention_heads,
                head_dim,
                scale: (f64::from(head_dim).sqrt().recip()) as f32,
                softcap: None,
                clip: None,
                window: None,
                in_chunks: false,
                sees_whole: false,
                sees_later: true,
                sharing: Sharing::Own,
            },
            qkv: match qkv {
                Linears::Joined(qkv_proj) => Qkv::Fused { qkv_proj, q_dim: dim, kv_dim: dim },
                Linears::Separate([q_proj, k_proj, v_proj]) => {
                    Qkv::Separate { q_proj, k_proj, v_proj }
                }
            },
            o_proj,
            qk_norms: QkNorms::None,
            v_norm: None,
            rope: None,
            position_scale: None,
            sinks: None,
            gate: OutputGate::None,
            kernels,
        }
    }
}

/// Returns true when the checkpoint has a head that classifies. It must have one class: a score.
///
/// # Errors
/// A head of several classes; `out` is its last projection.
pub(crate) fn scores(config: &Config, w: &Weights, out: &str) -> Result<bool> {
    let names = config.opt_texts("architectures")?.unwrap_or_default();
    if !names.iter().any(|name| name.ends_with("ForSequenceClassification")) {
        return Ok(false);
    }
    match w.at(out).shape("weight").as_deref() {
        Some([1, _]) | None => Ok(true),
        Some(shape) => Err(Error::model(format!(
            "tensor `{out}.weight` has shape {shape:?}: the model sorts texts into classes; rerankers have one"
        ))),
    }
}
