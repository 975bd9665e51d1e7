//! Helium: Llama's form, in which neighbouring values are rotated together.

use crate::config::{Config, RopeConfig, RopePairs};
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `HeliumForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config =
        &config.with_default_number("rms_norm_eps", 1e-8).with_defaults(&[("head_dim", 128)]);
    let shape = Shape::read(config)?;
    let rope =
        RopeConfig { pairs: RopePairs::Neighbours, ..config.rope("full_attention", 100_000.0)? };
    let qkv_bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let mlp_bias = config.opt_flag("mlp_bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    shape.decoder(config, w, &w.at("model"), |w, _| {
        let parts = AttentionParts { qkv_bias, ..AttentionParts::PLAIN };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        shape.pre_norm_block(w, attention, shape.mlp(&w.at("mlp"), act, mlp_bias)?)
    })
}
