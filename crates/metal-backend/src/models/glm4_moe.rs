//! GLM 4.5 to 4.7: a mixture of experts with sigmoid scores, corrected and in groups, beside one
//! expert that all positions pass; the first layers are dense. A half of each head is rotated.

use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Mixture, NormSpan, Shape};
use crate::weights::Weights;

/// Builds the model under the names of `Glm4MoeForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config
        .with_default_number("rms_norm_eps", 1e-5)
        .with_default_number("partial_rotary_factor", 0.5);
    let shape = Shape::read(config)?;
    let rope = config.partial_rope("full_attention", 10_000.0)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let has_norms = config.opt_flag("use_qk_norm")?.unwrap_or(false);
    let mixture = Mixture::read(config, shape.num_hidden_layers)?;
    let block = |w: &Weights, index| {
        let parts = AttentionParts {
            qkv_bias: bias,
            qk_norms: if has_norms { NormSpan::Head } else { NormSpan::None },
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        shape.pre_norm_block(w, attention, mixture.feed_forward(&shape, &w.at("mlp"), index)?)
    };
    let model = w.at("model");
    let drafter = shape.next_heads(w, &model, block)?;
    let decoder = shape.decoder(config, w, &model, block)?;
    Ok(Decoder { drafter, ..mixture.widen(decoder) })
}
