//! Phi 1, 1.5 and 2: attention and a network without a gate see the same layer norm and add at
//! once; a part of each head is rotated.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, NormSpan, Norms, Shape, Ungated};
use crate::weights::Weights;

/// Builds the model under the names of `PhiForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_default_number("partial_rotary_factor", 0.5);
    let shape = Shape {
        rms_norm_eps: config.opt_positive("layer_norm_eps")?.unwrap_or(1e-5) as f32,
        norms: Norms::Layer { has_bias: true },
        final_norm: "final_layernorm",
        head_bias: true,
        ..Shape::read(config)?
    };
    let rope = config.partial_rope("full_attention", 10_000.0)?;
    let has_norms = config.opt_flag("qk_layernorm")?.unwrap_or(false);
    let act = Ungated::read(config, "hidden_act", Ungated::Known(Activation::GeluTanh))?;
    shape.decoder(config, w, &w.at("model"), |w, _| {
        let parts = AttentionParts {
            qkv_bias: true,
            o_bias: true,
            o_name: "dense",
            qk_norms: if has_norms { NormSpan::Head } else { NormSpan::None },
            norm_names: ["q_layernorm", "k_layernorm"],
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let mlp = shape.plain_mlp(&w.at("mlp"), ["fc1", "fc2"], act, true)?;
        shape.parallel_block(w, attention, mlp)
    })
}
