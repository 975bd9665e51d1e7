//! Qwen 2 and 2.5: Llama's form with biases on queries, keys and values.

use crate::config::{Config, RopeConfig};
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Shape, activation, qwen_windows};
use crate::weights::Weights;

/// Builds the model under the names of `Qwen2ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &w.at("model"), config.rope("full_attention", 10_000.0)?)
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
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let windows = qwen_windows(config, shape.num_hidden_layers)?;
    shape.decoder(config, w, model, |w, index| {
        let parts =
            AttentionParts { qkv_bias: true, window: windows[index], ..AttentionParts::PLAIN };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        shape.pre_norm_block(w, attention, shape.mlp(&w.at("mlp"), act, false)?)
    })
}
