//! Recurrent Gemma (Griffin): two recurrent blocks of gated linear recurrent units to one of
//! attention with a window.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Decoder, Mixer};
use crate::shape::{AttentionParts, Norms, RgLruSizes, Shape, activation, rounded_to_bf16};
use crate::weights::Weights;

/// Builds the model under the names of `RecurrentGemmaForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let all = Shape::read(config)?;
    if config
        .opt_size("head_dim")?
        .is_some_and(|dim| dim * all.num_attention_heads != all.hidden_size)
    {
        return Err(Error::model("config.json: `head_dim` is not `hidden_size` by heads"));
    }
    // Config.json states both halves together.
    let intermediate_size = (all.intermediate_size / 2).max(1);
    let norms = Norms::OffsetRms;
    let shape = Shape { norms, intermediate_size, final_norm: "final_norm", ..all };
    let sizes = RgLruSizes::read(config, &shape)?;
    let is_recurrent = is_recurrent(config)?;
    let rope = config.with_default_number("partial_rotary_factor", 0.5);
    let rope = rope.partial_rope("full_attention", 10_000.0)?;
    let act = activation(config, "hidden_activation", Activation::GeluTanh)?;
    let window = config.opt_size("attention_window_size")?.unwrap_or(2048);
    let qkv_bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let softcap = config.nullable_positive("logits_soft_cap", Some(30.0))?;
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let temporal = w.at("temporal_block");
        let mixer: Mixer = if is_recurrent[index % is_recurrent.len()] {
            shape.rg_lru(&temporal, sizes, act)?.into()
        } else {
            let parts = AttentionParts {
                qkv_bias,
                o_bias: true,
                window: Some(window),
                ..AttentionParts::PLAIN
            };
            shape.attention(&temporal, Some(&rope), parts)?.into()
        };
        let mlp = shape.mlp(&w.at("mlp_block"), act, true)?;
        shape.pre_norm_block_named(w, ["temporal_pre_norm", "channel_pre_norm"], mixer, mlp)
    })?;
    let is_scaled = config.opt_flag("embeddings_scale_by_sqrt_dim")?.unwrap_or(true);
    // The factor of embeddings has this type wherever it is computed.
    let scale = rounded_to_bf16(f64::from(shape.hidden_size).sqrt())?;
    Ok(Decoder {
        embed_scale: is_scaled.then_some(scale),
        logit_softcap: softcap.map(|softcap| softcap as f32),
        ..decoder
    })
}

/// Which blocks are recurrent, over and over.
fn is_recurrent(config: &Config) -> Result<Vec<bool>> {
    // Releases differ in the key.
    let listed = config.opt_texts("block_types")?.or(config.opt_texts("_block_types")?);
    let types = listed.unwrap_or(vec!["recurrent", "recurrent", "attention"]);
    if types.is_empty() {
        return Err(Error::model("config.json: `block_types` is empty"));
    }
    let kind = |kind| match kind {
        "recurrent" => Ok(true),
        "attention" => Ok(false),
        other => Err(Error::model(format!(
            "config.json: `block_types` names `{other}`, known are recurrent, attention"
        ))),
    };
    types.into_iter().map(kind).collect()
}
