//! Gemma 3, text only: norms before and behind both halves of a block and over each head, five
//! layers with a sliding window and positions of their own to each one without.

use serde_json::Value;

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, NormSpan, Norms, Shape, activation, windows};
use crate::weights::Weights;

/// Builds the model under the names of `Gemma3ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &w.at("model"))
}

/// Builds the model with its blocks under `model` and its output layer under `w`. Keys that the
/// config leaves out have the defaults of transformers' `Gemma3TextConfig`.
pub(super) fn build(config: &Config, w: &Weights, model: &Weights) -> Result<Decoder> {
    let config = &config.with_defaults(&[
        ("num_attention_heads", 8),
        ("num_key_value_heads", 4),
        ("head_dim", 256),
        ("vocab_size", 262_208),
        ("max_position_embeddings", 131_072),
        ("sliding_window", 4096),
    ]);
    let shape = Shape { norms: Norms::OffsetRms, ..Shape::read(config)? };
    let global = config.rope("full_attention", 1_000_000.0)?;
    let local = config.local_rope()?;
    let act = activation(config, "hidden_activation", Activation::GeluTanh)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let scalar = config.opt_positive("query_pre_attn_scalar")?.unwrap_or(256.0);
    let logit_softcap = config.opt_positive("final_logit_softcapping")?;
    let pattern = match config.opt_size("sliding_window_pattern")? {
        Some(pattern) => pattern,
        None => config.opt_size("_sliding_window_pattern")?.unwrap_or(6),
    };
    let sees_later = config.get("use_bidirectional_attention") == Some(&Value::Bool(true));
    let sliding_window = config.opt_size("sliding_window")?;
    // Half of it lies before a position, half behind.
    let sliding_window = sliding_window.map(|size| if sees_later { size / 2 + 1 } else { size });
    let windows = windows(config, shape.num_hidden_layers, sliding_window, |index| {
        (index + 1) % pattern != 0
    })?;
    let decoder = shape.decoder(config, w, model, |w, index| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            qk_norms: NormSpan::Head,
            scale: Some(scalar.powf(-0.5)),
            window: windows[index],
            sees_whole: true,
            sees_later,
            ..AttentionParts::PLAIN
        };
        let rope = if windows[index].is_some() { &local } else { &global };
        let attention = shape.attention(&w.at("self_attn"), Some(rope), parts)?;
        shape.sandwich_block(w, attention, shape.mlp(&w.at("mlp"), act, false)?)
    })?;
    Ok(Decoder {
        embed_scale: Some(f64::from(shape.hidden_size).sqrt()),
        logit_softcap: logit_softcap.map(|softcap| softcap as f32),
        ..decoder
    })
}
