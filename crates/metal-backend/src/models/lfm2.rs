//! LFM 2: short convolutions, with attention in some layers.

use serde_json::Value;

use crate::config::{Config, RopeConfig};
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Decoder, FeedForward, Mixer};
use crate::shape::{AttentionParts, ExpertNames, NormSpan, Shape, attention_layers};
use crate::weights::Weights;

/// Builds the model under the names of `Lfm2ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let inner = match config.opt_size("block_ff_dim")? {
        Some(inner) => inner,
        None => config.opt_size("intermediate_size")?.unwrap_or(12_288),
    };
    let inner = adjusted(config, inner)?;
    let hybrid = Hybrid::read(config, inner)?;
    hybrid.decoder(config, w, |w, _| hybrid.dense(w))
}

/// The width of the feed-forward networks, of which config.json states `inner`: two thirds of it,
/// times a factor, up to the next multiple.
fn adjusted(config: &Config, inner: i32) -> Result<i32> {
    if !config.opt_flag("block_auto_adjust_ff_dim")?.unwrap_or(true) {
        return Ok(inner);
    }
    let multiple = config.opt_size("block_multiple_of")?.unwrap_or(256) as u64;
    let thirds = 2 * inner as u64 / 3;
    let width = match config.nullable_positive("block_ffn_dim_multiplier", Some(1.0))? {
        None => thirds,
        Some(factor) => {
            ((thirds as f64 * factor) as u64).div_ceil(multiple).saturating_mul(multiple)
        }
    };
    i32::try_from(width).ok().filter(|width| *width > 0).ok_or_else(|| {
        Error::model(format!(
            "config.json: `block_ff_dim` {inner}, `block_ffn_dim_multiplier` and `block_multiple_of` {multiple} give no width of a network: {width}"
        ))
    })
}

/// Short convolutions and attention, whatever the feed-forward networks are.
pub(super) struct Hybrid {
    pub shape: Shape,
    /// Of each layer; the others are short convolutions.
    has_attention: Vec<bool>,
    rope: RopeConfig,
    /// Positions that a position's convolution sees, itself included.
    taps: i32,
    /// Short convolutions and their projections have biases.
    conv_bias: bool,
}

impl Hybrid {
    /// Reads `config`; dense networks have `inner` values between their projections.
    ///
    /// # Errors
    /// A key that is missing or wrong; an option that the references do not compute.
    pub fn read(config: &Config, inner: i32) -> Result<Hybrid> {
        let sized = config.with_defaults(&[("intermediate_size", inner.into())]);
        let shape = Shape {
            intermediate_size: inner,
            rms_norm_eps: config.opt_positive("norm_eps")?.unwrap_or(1e-5) as f32,
            final_norm: "embedding_norm",
            ..Shape::read(&sized)?
        };
        refuse_others(config, &shape)?;
        let listed = config.opt_indices("full_attn_idxs")?;
        let is_attention =
            |index: i32| listed.as_ref().is_none_or(|list| list.contains(&(index as u64)));
        let taps = config.opt_size("conv_L_cache")?.unwrap_or(3);
        if taps > 64 || shape.hidden_size > i32::MAX / 6 {
            return Err(Error::model("config.json: `conv_L_cache` or `hidden_size` is too large"));
        }
        Ok(Hybrid {
            has_attention: attention_layers(
                config,
                shape.num_hidden_layers,
                &["conv"],
                is_attention,
            )?,
            rope: config.rope("full_attention", 1_000_000.0)?,
            taps,
            conv_bias: config.opt_flag("conv_bias")?.unwrap_or(false),
            shape,
        })
    }

    /// Builds the model whose parts are under `w`. `feed_forward` builds the network under a
    /// cursor, of the block with an index.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn decoder(
        &self,
        config: &Config,
        w: &Weights,
        feed_forward: impl Fn(&Weights, usize) -> Result<FeedForward>,
    ) -> Result<Decoder> {
        let shape = &self.shape;
        shape.decoder(config, w, &w.at("model"), |w, index| {
            let mixer: Mixer = if self.has_attention[index] {
                let parts = AttentionParts {
                    qk_norms: NormSpan::Head,
                    norm_names: ["q_layernorm", "k_layernorm"],
                    o_name: "out_proj",
                    ..AttentionParts::PLAIN
                };
                shape.attention(&w.at("self_attn"), Some(&self.rope), parts)?.into()
            } else {
                shape.short_convolution(&w.at("conv"), self.taps, self.conv_bias)?.into()
            };
            let mlp = feed_forward(&w.at("feed_forward"), index)?;
            shape.pre_norm_block_named(w, ["operator_norm", "ffn_norm"], mixer, mlp)
        })
    }

    /// The network under `w` that all positions pass. mlx-lm's converter gives the projections of
    /// LFM 2's mixtures the usual names.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn dense(&self, w: &Weights) -> Result<FeedForward> {
        let names = match w.at("w1").is_empty() {
            true => ExpertNames::PROJ,
            false => ExpertNames::NUMBERED,
        };
        let inner = self.shape.intermediate_size;
        self.shape.mlp_named(w, names, inner, Activation::Silu, false).map(Into::into)
    }
}

/// Refuses what first configs state and no reference computes.
fn refuse_others(config: &Config, shape: &Shape) -> Result<()> {
    for key in ["conv_dim", "conv_dim_out"] {
        if config.opt_size(key)?.is_some_and(|size| size != shape.hidden_size) {
            return Err(Error::model(format!(
                "config.json: `{key}` is not `hidden_size`, {}",
                shape.hidden_size
            )));
        }
    }
    for key in ["block_use_swiglu", "use_pos_enc"] {
        if config.opt_flag(key)? == Some(false) {
            return Err(config.wrong(key, &Value::from(false), "true"));
        }
    }
    Ok(())
}
