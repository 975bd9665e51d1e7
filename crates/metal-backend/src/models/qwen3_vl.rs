//! The language part of Qwen 3 VL. For text alone its three positions are equal, and that is Qwen 3.

use super::qwen3;
use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::shape::Language;
use crate::weights::Weights;

/// Builds the language model of `Qwen3VLForConditionalGeneration`; the vision tower is left aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let Language { config, head, model } = Language::of(config, w, &["visual.", "vision_tower."])?;
    qwen3::build(&config, &head, &model)
}
