//! Qwen 2 VL: Qwen 2 whose positions have rows and columns.

use super::qwen2;
use super::qwen3_5::VISION;
use crate::config::{Config, RopeConfig, RopeSections};
use crate::error::{Error, Result};
use crate::layers::{Decoder, Tower};
use crate::shape::{Language, qwen2_tower};
use crate::weights::Weights;

/// The base of the wavelengths where config.json does not state it.
const THETA: f64 = 1_000_000.0;

/// Pairs by time, rows and columns where config.json does not state them.
const SECTIONS: [u64; 3] = [16, 24, 24];

/// Values that transformers takes where config.json says nothing.
const DEFAULTS: [(&str, i64); 8] = [
    ("hidden_size", 8192),
    ("intermediate_size", 29_568),
    ("max_position_embeddings", 32_768),
    ("max_window_layers", 80),
    ("num_attention_heads", 64),
    ("num_hidden_layers", 80),
    ("num_key_value_heads", 8),
    ("vocab_size", 152_064),
];

/// Builds `Qwen2VLForConditionalGeneration`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, qwen2_tower)
}

/// Builds a model whose tower `tower` builds. The keys of the language part are under
/// `text_config`, or beside those of the tower, as in released checkpoints.
pub(super) fn build(
    config: &Config,
    w: &Weights,
    tower: impl Fn(&Config, &Weights, i32) -> Result<Option<Tower>>,
) -> Result<Decoder> {
    let width = config.of_text()?.with_defaults(&DEFAULTS).size("hidden_size")?;
    let tower = tower(config, w, width)?;
    let Language { config, head, model } = Language::of_flat(config, w, &VISION)?;
    let config = config.with_defaults(&DEFAULTS).with_default_number("rms_norm_eps", 1e-5);
    let rope = rope(&config)?;
    Ok(Decoder { tower, ..qwen2::build(&config, &head, &model, rope)? })
}

/// How positions are encoded: the first pairs by time, then those by rows, then those by columns,
/// whatever `mrope_interleaved` says.
fn rope(config: &Config) -> Result<RopeConfig> {
    let rope = config.rope("full_attention", THETA)?;
    let sizes = rope.sections.map_or(SECTIONS, |sections| sections.sizes);
    let heads = config.size("num_attention_heads")?;
    let head_dim = config.opt_size("head_dim")?.unwrap_or(config.size("hidden_size")? / heads);
    let pairs = sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size));
    if pairs != head_dim as u64 / 2 {
        return Err(Error::model(format!(
            "config.json: `mrope_section` has {pairs} pairs, expected {}, half of a head's values",
            head_dim / 2
        )));
    }
    Ok(RopeConfig { sections: Some(RopeSections { sizes, interleaved: false }), ..rope })
}
