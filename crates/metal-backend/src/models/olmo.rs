//! OLMo, the first version: Llama's form with layer norms that have no weights; some hold queries,
//! keys and values within a bound.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Norms, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `OlmoForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let shape = Shape { rms_norm_eps: 1e-5, norms: Norms::PlainLayer, ..Shape::read(config)? };
    let rope = config.rope("full_attention", 10_000.0)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let clip = config.opt_positive("clip_qkv")?;
    let act = activation(config, "hidden_act", Activation::Silu)?;
    shape.decoder(config, w, &w.at("model"), |w, _| {
        let parts = AttentionParts { qkv_bias: bias, o_bias: bias, clip, ..AttentionParts::PLAIN };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        shape.pre_norm_block(w, attention, shape.mlp(&w.at("mlp"), act, false)?)
    })
}
