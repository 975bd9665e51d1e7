//! InternLM 3: Llama's form, with biases that the config turns on and off.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `InternLM3ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    // transformers saves the flags under Llama's names.
    let config = &config
        .with_names(&[("attention_bias", "qkv_bias"), ("mlp_bias", "bias")])
        .with_default_number("rms_norm_eps", 1e-5);
    let shape = Shape::read(config)?;
    let rope = config.rope("full_attention", 10_000.0)?;
    let qkv_bias = config.opt_flag("qkv_bias")?.unwrap_or(false);
    let bias = config.opt_flag("bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    shape.decoder(config, w, &w.at("model"), |w, _| {
        let parts = AttentionParts { qkv_bias, o_bias: bias, ..AttentionParts::PLAIN };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        shape.pre_norm_block(w, attention, shape.mlp(&w.at("mlp"), act, bias)?)
    })
}
