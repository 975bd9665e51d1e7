//! Mistral: Llama's form, with a sliding window over every layer in version 0.1.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Shape, activation, windows};
use crate::weights::Weights;

/// Builds the model under the names of `MistralForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &w.at("model"))
}

/// Builds the model with its blocks under `model` and its output layer under `w`.
pub(super) fn build(config: &Config, w: &Weights, model: &Weights) -> Result<Decoder> {
    let shape = Shape::read(config)?;
    let rope = config.rope("full_attention", 10_000.0)?;
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let sliding_window = config.opt_size("sliding_window")?;
    let windows = windows(config, shape.num_hidden_layers, sliding_window, |_| true)?;
    shape.decoder(config, w, model, |w, index| {
        let parts = AttentionParts { window: windows[index], ..AttentionParts::PLAIN };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        shape.pre_norm_block(w, attention, shape.mlp(&w.at("mlp"), act, false)?)
    })
}
