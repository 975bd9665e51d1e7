//! The multimodal Gemma 3 checkpoints, the form in which most are released.

use super::gemma3_text;
use crate::config::Config;
use crate::error::Result;
use crate::layers::Decoder;
use crate::shape::{Language, siglip_tower};
use crate::weights::Weights;

/// Builds `Gemma3ForConditionalGeneration`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let tower = siglip_tower(config, w, Language::width(config)?)?;
    let Language { config, head, model } =
        Language::of(config, w, &["vision_tower.", "multi_modal_projector."])?;
    Ok(Decoder { tower, ..gemma3_text::build(&config, &head, &model)? })
}

#[cfg(test)]
mod tests;
