//! Gemma 2: norms before and behind both halves of a block, scores and logits squashed by tanh,
//! every other layer with a sliding window.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Norms, Shape, activation, windows};
use crate::weights::Weights;

/// Builds the model under the names of `Gemma2ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let shape = Shape { norms: Norms::OffsetRms, ..Shape::read(config)? };
    let rope = config.rope("full_attention", 10_000.0)?;
    let act = activation(config, "hidden_activation", Activation::GeluTanh)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let scalar = config.opt_positive("query_pre_attn_scalar")?.unwrap_or(256.0);
    let softcap = config.nullable_positive("attn_logit_softcapping", Some(50.0))?;
    let logit_softcap = config.nullable_positive("final_logit_softcapping", Some(30.0))?;
    let sliding_window = config.opt_size("sliding_window")?;
    let windows = windows(config, shape.num_hidden_layers, sliding_window, |index| index % 2 == 0)?;
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            scale: Some(scalar.powf(-0.5)),
            softcap,
            window: windows[index],
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        shape.sandwich_block(w, attention, shape.mlp(&w.at("mlp"), act, false)?)
    })?;
    Ok(Decoder {
        embed_scale: Some(f64::from(shape.hidden_size).sqrt()),
        logit_softcap: logit_softcap.map(|softcap| softcap as f32),
        ..decoder
    })
}
