//! Command R7B and A: attention and feed-forward network see the same norm and add at once; one
//! layer of four sees everything and no positions.

use crate::config::{Config, RopeConfig, RopePairs};
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Norms, Shape, activation, windows};
use crate::weights::Weights;

/// Builds the model under the names of `Cohere2ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_defaults(&[("sliding_window", 4096)]);
    if config.opt_flag("use_qk_norm")?.unwrap_or(false) {
        return Err(Error::model("config.json: `use_qk_norm` is true, expected false"));
    }
    let shape = Shape {
        rms_norm_eps: config.opt_positive("layer_norm_eps")?.unwrap_or(1e-5) as f32,
        norms: Norms::Layer { has_bias: false },
        ..Shape::read(config)?
    };
    let rope =
        RopeConfig { pairs: RopePairs::Neighbours, ..config.rope("sliding_attention", 10_000.0)? };
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let scale = config.opt_positive("logit_scale")?.unwrap_or(0.0625) as f32;
    let pattern = config.opt_size("sliding_window_pattern")?.unwrap_or(4);
    let window = config.opt_size("sliding_window")?;
    let windows =
        windows(config, shape.num_hidden_layers, window, |index| (index + 1) % pattern != 0)?;
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            window: windows[index],
            ..AttentionParts::PLAIN
        };
        let rope = windows[index].is_some().then_some(&rope);
        let attention = shape.attention(&w.at("self_attn"), rope, parts)?;
        shape.parallel_block(w, attention, shape.mlp(&w.at("mlp"), act, false)?)
    })?;
    Ok(Decoder { logit_scale: Some(scale), ..decoder })
}
