//! Command R: attention and feed-forward network see the same layer norm and add at once.

use crate::config::{Config, RopeConfig, RopePairs};
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, NormSpan, Norms, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `CohereForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let shape = Shape {
        rms_norm_eps: config.opt_positive("layer_norm_eps")?.unwrap_or(1e-5) as f32,
        norms: Norms::Layer { has_bias: false },
        ..Shape::read(config)?
    };
    let rope =
        RopeConfig { pairs: RopePairs::Neighbours, ..config.rope("full_attention", 500_000.0)? };
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let has_norms = config.opt_flag("use_qk_norm")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let scale = config.opt_positive("logit_scale")?.unwrap_or(0.0625) as f32;
    let decoder = shape.decoder(config, w, &w.at("model"), |w, _| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            qk_norms: if has_norms { NormSpan::OwnHead } else { NormSpan::None },
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        shape.parallel_block(w, attention, shape.mlp(&w.at("mlp"), act, false)?)
    })?;
    Ok(Decoder { logit_scale: Some(scale), ..decoder })
}
