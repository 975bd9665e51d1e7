//! Arcee's foundation models: Llama's form with a network that squares what is above 0.

use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Shape, Ungated};
use crate::weights::Weights;

/// Builds the model under the names of `ArceeForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_default_number("rms_norm_eps", 1e-5);
    let shape = Shape::read(config)?;
    let rope = config.rope("full_attention", 10_000.0)?;
    let attention_bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let mlp_bias = config.opt_flag("mlp_bias")?.unwrap_or(false);
    let act = Ungated::read(config, "hidden_act", Ungated::SquaredRelu)?;
    shape.decoder(config, w, &w.at("model"), |w, _| {
        let parts = AttentionParts {
            qkv_bias: attention_bias,
            o_bias: attention_bias,
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let mlp = shape.plain_mlp(&w.at("mlp"), ["up_proj", "down_proj"], act, mlp_bias)?;
        shape.pre_norm_block(w, attention, mlp)
    })
}
