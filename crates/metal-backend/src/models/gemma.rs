//! Gemma, the first version: Llama's form with scaled embeddings, norms whose weights are stored as
//! their distance from 1, and a GELU.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Norms, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `GemmaForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_defaults(&[("head_dim", 256)]);
    let shape = Shape { norms: Norms::OffsetRms, ..Shape::read(config)? };
    let rope = config.rope("full_attention", 10_000.0)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    // The first releases say `gelu` and mean its tanh form.
    let act = match activation(config, "hidden_act", Activation::GeluTanh)? {
        Activation::Gelu => Activation::GeluTanh,
        act => act,
    };
    let decoder = shape.decoder(config, w, &w.at("model"), |w, _| {
        let parts = AttentionParts { qkv_bias: bias, o_bias: bias, ..AttentionParts::PLAIN };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        shape.pre_norm_block(w, attention, shape.mlp(&w.at("mlp"), act, false)?)
    })?;
    Ok(Decoder { embed_scale: Some(f64::from(shape.hidden_size).sqrt()), ..decoder })
}
