//! DeepSeek V3.2: DeepSeek V3's form, whose positions attend to the keys that an index chooses.

use super::deepseek_v3::latent_parts;
use crate::config::{Config, RopePairs};
use crate::error::Result;
use crate::layers::Decoder;
use crate::shape::{IndexParts, Mixture, Shape};
use crate::weights::Weights;

/// Builds the model under the names of `DeepseekV32ForCausalLM`; the layer that predicts a further
/// token is left aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let defaults = [("first_k_dense_replace", 3), ("n_group", 8), ("topk_group", 4)];
    let config = config.with_defaults(&defaults).with_default_number("routed_scaling_factor", 2.5);
    // Whatever turns in attention, halves turn here.
    let index = IndexParts::read(&config, 64, RopePairs::Halves)?;
    build(&config, w, &index)
}

/// Builds the model that `config` states, with this index of keys.
pub(super) fn build(config: &Config, w: &Weights, index: &IndexParts) -> Result<Decoder> {
    let shape = Shape::read_latent(config)?;
    let latent = latent_parts(config)?;
    let mixture = Mixture::read(config, shape.num_hidden_layers)?;
    w.leave_layers_from(shape.num_hidden_layers);
    let decoder = shape.decoder(config, w, &w.at("model"), |w, layer| {
        let attention = shape.indexed_attention(&w.at("self_attn"), &latent, index, layer)?;
        shape.pre_norm_block(w, attention, mixture.feed_forward(&shape, &w.at("mlp"), layer)?)
    })?;
    Ok(mixture.widen(decoder))
}
