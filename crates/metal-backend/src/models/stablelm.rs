//! StableLM: Llama's form with layer norms, in which a quarter of each head is rotated; in some,
//! attention and network add at once, and each head is normed by weights of its own.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, NormSpan, Norms, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `StableLmForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_default_number("partial_rotary_factor", 0.25);
    let shape = Shape {
        rms_norm_eps: config.opt_positive("layer_norm_eps")?.unwrap_or(1e-5) as f32,
        norms: Norms::Layer { has_bias: true },
        ..Shape::read(config)?
    };
    let rope = config.partial_rope("full_attention", 10_000.0)?;
    let qkv_bias = config.opt_flag("use_qkv_bias")?.unwrap_or(false);
    let has_norms = config.opt_flag("qk_layernorm")?.unwrap_or(false);
    let is_parallel = config.opt_flag("use_parallel_residual")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    shape.decoder(config, w, &w.at("model"), |w, _| {
        let parts = AttentionParts {
            qkv_bias,
            qk_norms: if has_norms { NormSpan::OwnHead } else { NormSpan::None },
            norm_names: ["q_layernorm", "k_layernorm"],
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let mlp = shape.mlp(&w.at("mlp"), act, false)?;
        match is_parallel {
            true => shape.parallel_block(w, attention, mlp),
            false => shape.pre_norm_block(w, attention, mlp),
        }
    })
}
