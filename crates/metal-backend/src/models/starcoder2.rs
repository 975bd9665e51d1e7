//! StarCoder 2: layer norms, biases everywhere, a network without a gate, a sliding window.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Norms, Shape, Ungated, windows};
use crate::weights::Weights;

/// Builds the model under the names of `Starcoder2ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let shape = Shape {
        rms_norm_eps: config.opt_positive("norm_epsilon")?.unwrap_or(1e-5) as f32,
        norms: Norms::Layer { has_bias: true },
        ..Shape::read(config)?
    };
    let rope = config.rope("full_attention", 10_000.0)?;
    let bias = config.opt_flag("use_bias")?.unwrap_or(true);
    let act = Ungated::read(config, "hidden_act", Ungated::Known(Activation::GeluTanh))?;
    let window = config.opt_size("sliding_window")?;
    let windows = windows(config, shape.num_hidden_layers, window, |_| true)?;
    shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            window: windows[index],
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let mlp = shape.plain_mlp(&w.at("mlp"), ["c_fc", "c_proj"], act, bias)?;
        shape.pre_norm_block(w, attention, mlp)
    })
}
