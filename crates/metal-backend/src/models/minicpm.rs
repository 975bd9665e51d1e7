//! MiniCPM 1, 2 and 4, dense: Llama's form with factors on embeddings, what blocks add, and logits.

use crate::config::Config;
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::{Block, Decoder, Residual};
use crate::shape::{AttentionParts, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `MiniCPMForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    for key in ["sparse_config", "num_experts"] {
        if let Some(found) = config.get(key).filter(|value| value.as_i64() != Some(0)) {
            return Err(config.wrong(key, found, "none: dense layers that see everything"));
        }
    }
    let shape = Shape::read(config)?;
    let rope = config.rope("full_attention", 10_000.0)?;
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let embedding = config.opt_positive("scale_emb")?.unwrap_or(1.0);
    let depth = config.opt_positive("scale_depth")?.unwrap_or(1.0);
    let residual = depth / f64::from(shape.num_hidden_layers).sqrt();
    let base = config.opt_size("dim_model_base")?.unwrap_or(shape.hidden_size);
    let decoder = shape.decoder(config, w, &w.at("model"), |w, _| {
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), AttentionParts::PLAIN)?;
        let block = shape.pre_norm_block(w, attention, shape.mlp(&w.at("mlp"), act, false)?)?;
        Ok(Block { residual: Residual::Scaled(residual as f32), ..block })
    })?;
    Ok(Decoder {
        embed_scale: Some(embedding),
        logit_scale: Some((f64::from(base) / f64::from(shape.hidden_size)) as f32),
        ..decoder
    })
}
