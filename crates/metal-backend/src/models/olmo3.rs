//! OLMo 3: OLMo 2's form, with a sliding window on three layers of four, whose positions are never
//! stretched.

use crate::config::{Config, RopeConfig, RopeScaling};
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, NormSpan, Shape, activation, windows};
use crate::weights::Weights;

/// Builds the model under the names of `Olmo3ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_defaults(&[("sliding_window", 4096)]);
    let shape = Shape::read(config)?;
    let full = config.rope("full_attention", 500_000.0)?;
    let sliding =
        RopeConfig { scaling: RopeScaling::None, ..config.rope("sliding_attention", full.theta)? };
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let window = config.opt_size("sliding_window")?;
    let windows = windows(config, shape.num_hidden_layers, window, |i| (i + 1) % 4 != 0)?;
    shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            qk_norms: NormSpan::Projection,
            window: windows[index],
            ..AttentionParts::PLAIN
        };
        let rope = if windows[index].is_some() { &sliding } else { &full };
        let attention = shape.attention(&w.at("self_attn"), Some(rope), parts)?;
        shape.post_norm_block(w, attention, shape.mlp(&w.at("mlp"), act, false)?)
    })
}
