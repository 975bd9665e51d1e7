//! The language part of a checkpoint that has others too.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::weights::Weights;

/// The language part of a multimodal checkpoint.
pub(crate) struct Language {
    /// `text_config`.
    pub config: Config,
    /// A cursor at the output layer.
    pub head: Weights,
    /// A cursor at the embeddings and the blocks.
    pub model: Weights,
}

impl Language {
    /// Values of a position of the language part.
    ///
    /// # Errors
    /// A config without them.
    pub fn width(config: &Config) -> Result<i32> {
        let text = config.object("text_config")?;
        text.ok_or_else(|| Error::model("config.json: key `text_config` is missing"))?
            .size("hidden_size")
    }

    /// The language part of a checkpoint that sees and hears (Gemma 3n and 4): what was not taken
    /// of both is left aside.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn of_speech(config: &Config, w: &Weights) -> Result<Language> {
        leave_part(w, "audio tower", &["audio_tower.", "embed_audio."]);
        let vision =
            ["vision_tower.", "vision_embedder.", "embed_vision.", "multi_modal_projector."];
        Language::of(config, w, &vision)
    }

    /// The language part. The tensors whose names begin with one of `vision`, after a `model.`, are
    /// left aside.
    ///
    /// # Errors
    /// A config without `text_config`.
    pub fn of(outer: &Config, w: &Weights, vision: &[&str]) -> Result<Language> {
        let text = outer.object("text_config")?;
        let text = text.ok_or_else(|| Error::model("config.json: key `text_config` is missing"))?;
        Language::with(text, outer, w, vision)
    }

    /// The language part of a config that may have its keys beside those of the tower (Qwen 2 VL).
    ///
    /// # Errors
    /// A value of another type.
    pub fn of_flat(outer: &Config, w: &Weights, vision: &[&str]) -> Result<Language> {
        Language::with(outer.of_text()?, outer, w, vision)
    }

    fn with(text: Config, outer: &Config, w: &Weights, vision: &[&str]) -> Result<Language> {
        let config = text
            // Some releases state these outside only.
            .with_fallback(outer, "vocab_size")
            .with_fallback(outer, "tie_word_embeddings");
        // transformers goes by the outer flag, and saves the inner one as its class has it.
        let is_tied = outer.opt_flag("tie_word_embeddings")? == Some(true);
        let config = if is_tied { config.with_flag("tie_word_embeddings", true) } else { config };
        leave_part(w, "vision tower", vision);
        // transformers 5 saves `model.language_model.…`, everything before
        // `language_model.model.…`.
        let (newer, older) = (w.at("model.language_model"), w.at("language_model"));
        let (head, model) = if !newer.is_empty() {
            (w.clone(), newer)
        } else if !older.is_empty() {
            let model = older.at("model");
            (older, model)
        } else {
            (w.clone(), w.at("model"))
        };
        Ok(Language { config, head, model })
    }
}

/// Leaves aside the tensors whose names begin with one of `prefixes`, after a `model.`.
fn leave_part(w: &Weights, part: &'static str, prefixes: &[&str]) {
    w.leave_part(part, |name| {
        let name = name.strip_prefix("model.").unwrap_or(name);
        prefixes.iter().any(|prefix| name.starts_with(prefix))
    });
}
