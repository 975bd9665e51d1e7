//! Mistral 4: DeepSeek's form, with queries that grow with their position, and experts by their
//! probabilities.

use super::deepseek_v3::latent_parts;
use super::ministral3::position_scale;
use crate::config::Config;
use crate::error::Result;
use crate::layers::{Decoder, LatentAttention};
use crate::shape::{Mixture, Shape};
use crate::weights::Weights;

/// Builds the model under the names of `Mistral4ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &w.at("model"))
}

/// Builds the model with its blocks under `model` and its output layer under `w`.
pub(super) fn build(config: &Config, w: &Weights, model: &Weights) -> Result<Decoder> {
    let config = &config.with_defaults(&[("first_k_dense_replace", 0)]);
    let shape = Shape::read_latent(config)?;
    let latent = latent_parts(config)?;
    let position_scale = position_scale(config)?;
    let mixture = Mixture::of_grouped_probabilities(config, shape.num_hidden_layers)?;
    let decoder = shape.decoder(config, w, model, |w, index| {
        let attention = shape.latent_attention(&w.at("self_attn"), &latent)?;
        let attention = LatentAttention { position_scale, ..attention };
        shape.pre_norm_block(w, attention, mixture.feed_forward(&shape, &w.at("mlp"), index)?)
    })?;
    Ok(mixture.widen(decoder))
}
