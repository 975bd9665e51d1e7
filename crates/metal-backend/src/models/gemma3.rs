//! The language part of the multimodal Gemma 3 checkpoints, the form in which most are released.

use super::gemma3_text;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::layers::Decoder;
use crate::weights::Weights;

/// Builds the language model of `Gemma3ForConditionalGeneration`; the vision tower is set aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let text = config
        .object("text_config")?
        .ok_or_else(|| Error::model("config.json: key `text_config` is missing"))?
        // Some releases state the vocabulary's size outside only.
        .with_fallback(config, "vocab_size")
        .with_fallback(config, "tie_word_embeddings");
    w.ignore(|name| {
        let name = name.strip_prefix("model.").unwrap_or(name);
        name.starts_with("vision_tower.") || name.starts_with("multi_modal_projector.")
    });
    // transformers 5 saves `model.language_model.…`, everything before `language_model.model.…`.
    let newer = w.at("model.language_model");
    if newer.is_empty() {
        let language_model = w.at("language_model");
        gemma3_text::build(&text, &language_model, &language_model.at("model"))
    } else {
        gemma3_text::build(&text, w, &newer)
    }
}

#[cfg(test)]
mod tests;
