//! Nemotron 3 of 8B, 4 of 15B and Minitron: layer norms whose weights are stored as their distance
//! from 1, and a network that squares what is above 0; a half of each head is rotated.

use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Norms, Shape, Ungated};
use crate::weights::Weights;

/// Builds the model under the names of `NemotronForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_default_number("partial_rotary_factor", 0.5);
    let shape = Shape {
        rms_norm_eps: config.opt_positive("norm_eps")?.unwrap_or(1e-5) as f32,
        norms: Norms::OffsetLayer,
        ..Shape::read(config)?
    };
    let rope = config.partial_rope("full_attention", 10_000.0)?;
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
