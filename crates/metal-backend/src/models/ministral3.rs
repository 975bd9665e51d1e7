//! Ministral 3: Llama's form, with queries that grow with their position.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Decoder, PositionScale};
use crate::shape::{AttentionParts, Shape, activation, windows};
use crate::weights::Weights;

/// Builds the model under the names of `Ministral3ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &w.at("model"))
}

/// Builds the model with its blocks under `model` and its output layer under `w`.
pub(super) fn build(config: &Config, w: &Weights, model: &Weights) -> Result<Decoder> {
    let config = &config.with_default_number("rms_norm_eps", 1e-5);
    let shape = Shape::read(config)?;
    let rope = config.rope("full_attention", 1_000_000.0)?;
    let position_scale = position_scale(config)?;
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let sliding_window = config.opt_size("sliding_window")?;
    let windows = windows(config, shape.num_hidden_layers, sliding_window, |_| true)?;
    shape.decoder(config, w, model, |w, index| {
        let parts =
            AttentionParts { window: windows[index], position_scale, ..AttentionParts::PLAIN };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        shape.pre_norm_block(w, attention, shape.mlp(&w.at("mlp"), act, false)?)
    })
}

/// `llama_4_scaling_beta` beside the original context, in the position encoding's parameters.
pub(super) fn position_scale(config: &Config) -> Result<Option<PositionScale>> {
    const ORIGINAL: &str = "original_max_position_embeddings";
    let parameters = config.object("rope_parameters")?.or(config.object("rope_scaling")?);
    let Some(parameters) = parameters else { return Ok(None) };
    let Some(beta) = parameters.opt_number("llama_4_scaling_beta")? else { return Ok(None) };
    let original = parameters.opt_size(ORIGINAL)?.ok_or_else(|| {
        Error::model(format!("config.json: `llama_4_scaling_beta` needs `{ORIGINAL}` beside it"))
    })?;
    Ok(Some(PositionScale { beta, original, first: 0 }))
}
