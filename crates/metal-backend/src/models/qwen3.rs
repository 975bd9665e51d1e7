//! Qwen 3: Llama's form with a norm over each head's queries and keys.

use crate::config::{Config, RopeConfig};
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, NormSpan, Shape, activation, qwen_windows};
use crate::weights::Weights;

/// The base of the wavelengths where config.json does not state it.
const THETA: f64 = 10_000.0;

/// Builds the model under the names of `Qwen3ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &w.at("model"), config.rope("full_attention", THETA)?)
}

/// Builds the model with its blocks under `model` and its output layer under `w`, whose positions
/// are encoded by `rope`.
pub(super) fn build(
    config: &Config,
    w: &Weights,
    model: &Weights,
    rope: RopeConfig,
) -> Result<Decoder> {
    let shape = Shape::read(config)?;
    let attention_bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let windows = qwen_windows(config, shape.num_hidden_layers)?;
    shape.decoder(config, w, model, |w, index| {
        let parts = AttentionParts {
            qkv_bias: attention_bias,
            o_bias: attention_bias,
            qk_norms: NormSpan::Head,
            window: windows[index],
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        shape.pre_norm_block(w, attention, shape.mlp(&w.at("mlp"), act, false)?)
    })
}
