//! The language part of the multimodal Mistral checkpoints: Mistral Small 3.1 and 3.2, Ministral 3.

use super::{ministral3, mistral};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::layers::Decoder;
use crate::shape::Language;
use crate::weights::Weights;

/// Builds the language model of `Mistral3ForConditionalGeneration`; the vision tower is left aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let Language { config, head, model } =
        Language::of(config, w, &["vision_tower.", "multi_modal_projector."])?;
    match config.opt_text("model_type")? {
        None | Some("mistral") => mistral::build(&config, &head, &model),
        Some("ministral3") => ministral3::build(&config, &head, &model),
        Some(other) => Err(Error::model(format!(
            "config.json: `text_config` has the `model_type` `{other}`, known are mistral, ministral3"
        ))),
    }
}
