//! The language part of the multimodal Gemma 3 checkpoints, the form in which most are released.

use super::gemma3_text;
use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::shape::Language;
use crate::weights::Weights;

/// Builds the language model of `Gemma3ForConditionalGeneration`; the vision tower is left aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let Language { config, head, model } =
        Language::of(config, w, &["vision_tower.", "multi_modal_projector."])?;
    gemma3_text::build(&config, &head, &model)
}

#[cfg(test)]
mod tests;
