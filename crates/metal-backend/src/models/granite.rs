//! Granite: Llama's form with factors on embeddings, scores, what blocks add, and logits.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::{Block, Decoder, Residual};
use crate::shape::{AttentionParts, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `GraniteForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let shape = Shape::read(config)?;
    let rope = config.rope("full_attention", 10_000.0)?;
    let attention_bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let mlp_bias = config.opt_flag("mlp_bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let scale = config.opt_positive("attention_multiplier")?.unwrap_or(1.0);
    let residual = config.opt_positive("residual_multiplier")?.unwrap_or(1.0);
    let embedding = config.opt_positive("embedding_multiplier")?.unwrap_or(1.0);
    let logits = config.opt_positive("logits_scaling")?.unwrap_or(1.0);
    let decoder = shape.decoder(config, w, &w.at("model"), |w, _| {
        let parts = AttentionParts {
            qkv_bias: attention_bias,
            o_bias: attention_bias,
            scale: Some(scale),
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let block = shape.pre_norm_block(w, attention, shape.mlp(&w.at("mlp"), act, mlp_bias)?)?;
        Ok(Block { residual: Residual::Scaled(residual as f32), ..block })
    })?;
    Ok(Decoder {
        embed_scale: Some(embedding),
        logit_scale: Some(logits.recip() as f32),
        ..decoder
    })
}
