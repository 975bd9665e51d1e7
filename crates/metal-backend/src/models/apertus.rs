//! Apertus: Llama's form with norms over each head, and a network without a gate whose activation
//! (xIELU) has learned slopes.

use crate::config::{Config, RopeConfig, RopeScaling};
use crate::error::Result;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, NormSpan, Shape, Ungated};
use crate::weights::Weights;

/// Builds the model under the names of `ApertusForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_default_number("rms_norm_eps", 1e-5);
    let shape = Shape::read(config)?;
    let rope = rope(config)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let act = Ungated::read(config, "hidden_act", Ungated::Xielu)?;
    shape.decoder(config, w, &w.at("model"), |w, _| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            qk_norms: NormSpan::Head,
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let mlp = shape.plain_mlp(&w.at("mlp"), ["up_proj", "down_proj"], act, false)?;
        let norms = ["attention_layernorm", "feedforward_layernorm"];
        shape.pre_norm_block_named(w, norms, attention, mlp)
    })
}

/// The position encoding: where the config has no parameters of it, those of the releases.
fn rope(config: &Config) -> Result<RopeConfig> {
    let rope = config.rope("full_attention", 12_000_000.0)?;
    if ["rope_parameters", "rope_scaling"].iter().any(|key| config.get(key).is_some()) {
        return Ok(rope);
    }
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192.0,
    };
    Ok(RopeConfig { scaling, ..rope })
}
