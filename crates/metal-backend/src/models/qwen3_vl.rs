//! Qwen 3 VL: Qwen 3 whose positions have rows and columns, and to whose first layers pictures are
//! added.

use super::qwen3;
use super::qwen3_5::VISION;
use crate::config::{Config, RopeConfig, RopeSections};
use crate::error::Result;
use crate::layers::Decoder;
use crate::shape::{Language, qwen_tower};
use crate::weights::Weights;

/// The base of the wavelengths where config.json does not state it.
const THETA: f64 = 500_000.0;

/// Which pairs turn by time, row and column where config.json does not state it.
const SIZES: [u64; 3] = [24, 20, 20];

/// Builds `Qwen3VLForConditionalGeneration`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let tower = qwen_tower(config, w, Language::width(config)?)?;
    let Language { config, head, model } = Language::of(config, w, &VISION)?;
    let rope = rope(&config)?;
    Ok(Decoder { tower, ..qwen3::build(&config, &head, &model, rope)? })
}

/// How positions are encoded: by time, row and column in turns, whatever `mrope_interleaved` says.
pub(super) fn rope(config: &Config) -> Result<RopeConfig> {
    let rope = config.rope("full_attention", THETA)?;
    let sizes = rope.sections.map_or(SIZES, |sections| sections.sizes);
    Ok(RopeConfig { sections: Some(RopeSections { sizes, interleaved: true }), ..rope })
}
