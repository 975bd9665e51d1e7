//! DeepSeek V3, V3.1 and R1, and Kimi K2: latent attention, and experts with corrected sigmoid
//! scores in groups.

use crate::config::{Config, RopeConfig, RopePairs};
use crate::error::Result;
use crate::layers::{Decoder, LatentSizes};
use crate::shape::{LatentParts, Mixture, Shape};
use crate::weights::Weights;

/// Builds the model under the names of `DeepseekV3ForCausalLM`; the layer that predicts a
/// further token drafts, or is left aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    build_at(config, w, &w.at("model"))
}

/// Builds the model with its blocks under `model` and its output layer under `w`.
pub(super) fn build_at(config: &Config, w: &Weights, model: &Weights) -> Result<Decoder> {
    let defaults = [("first_k_dense_replace", 3), ("n_group", 8), ("topk_group", 4)];
    let config = config.with_defaults(&defaults).with_default_number("routed_scaling_factor", 2.5);
    build(&config, w, model, Mixture::read)
}

/// Builds the model that `config` states without defaults of one architecture. `mixture` reads its
/// experts.
pub(super) fn build(
    config: &Config,
    w: &Weights,
    model: &Weights,
    mixture: fn(&Config, i32) -> Result<Mixture>,
) -> Result<Decoder> {
    let shape = Shape::read_latent(config)?;
    let parts = latent_parts(config)?;
    let mixture = mixture(config, shape.num_hidden_layers)?;
    let block = |w: &Weights, index| {
        let attention = shape.latent_attention(&w.at("self_attn"), &parts)?;
        shape.pre_norm_block(w, attention, mixture.feed_forward(&shape, &w.at("mlp"), index)?)
    };
    let drafter = shape.next_heads(w, model, block)?;
    let decoder = shape.decoder(config, w, model, block)?;
    Ok(Decoder { drafter, ..mixture.widen(decoder) })
}

/// The latent attention that `config` states, which sees positions.
pub(super) fn latent_parts(config: &Config) -> Result<LatentParts> {
    let parts = LatentParts::read(config)?;
    let rope = config.partial_rope("full_attention", 10_000.0)?;
    // Some say so of whole heads, whose other part never turns.
    let LatentSizes { nope, rope: turned, .. } = parts.sizes;
    let factor = rope.partial_rotary_factor;
    let of_whole = f64::from(turned) / f64::from(nope + turned);
    if factor != 1.0 && (factor - of_whole).abs() > 1e-6 {
        let expected = format!("1, or {of_whole}: what turns of a whole head");
        return Err(config.wrong("partial_rotary_factor", &factor.into(), &expected));
    }
    let pairs = match config.opt_flag("rope_interleave")? {
        Some(false) => RopePairs::Halves,
        Some(true) | None => RopePairs::Neighbours,
    };
    Ok(LatentParts {
        rope: Some(RopeConfig { pairs, partial_rotary_factor: 1.0, ..rope }),
        score_factor: config.yarn_score_factor()?,
        ..parts
    })
}
