//! Seed-OSS: Llama's form with biases on queries, keys and values.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `SeedOssForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_defaults(&[("head_dim", 128)]);
    let shape = Shape::read(config)?;
    let rope = config.rope("full_attention", 10_000.0)?;
    let qkv_bias = config.opt_flag("attention_bias")?.unwrap_or(true);
    let o_bias = config.opt_flag("attention_out_bias")?.unwrap_or(false);
    let mlp_bias = config.opt_flag("mlp_bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    shape.decoder(config, w, &w.at("model"), |w, _| {
        let parts = AttentionParts { qkv_bias, o_bias, ..AttentionParts::PLAIN };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        shape.pre_norm_block(w, attention, shape.mlp(&w.at("mlp"), act, mlp_bias)?)
    })
}
