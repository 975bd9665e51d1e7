//! The server's entry of a model: its names, whether it stays, and what is known before its load.

use inference_core::{
    EmbeddingLoadOptions, ImageLoadOptions, LoadOptions, SpeechLoadOptions,
    TranscriptionLoadOptions,
};
use inference_server::{Described, Entry};

use super::sources::{Named, Place, with_adapter};
use crate::failure::Result;

/// A description of a model that is not loaded.
///
/// # Errors
/// One for text is broken. One of a folder is served all the same, so that its requests are told
/// what is wrong with it.
pub fn describe(one: &Named, load: &LoadOptions) -> Result<Option<Described>> {
    // What is wrong with one of another kind is told when it is loaded.
    Ok(match &one.place {
        Place::Text(source) => {
            let (info, capabilities) = source.describe(load)?;
            Some(Described::Text(Box::new(info), capabilities))
        }
        Place::Adapted(source, adapter) => {
            let (info, capabilities) = source.describe(&with_adapter(load, adapter))?;
            Some(Described::Text(Box::new(info), capabilities))
        }
        Place::Image(folder) => {
            let told = metal_backend::describe_image_model(folder, &ImageLoadOptions::default());
            told.ok().map(|info| Described::Image(Box::new(info)))
        }
        Place::Embedding(folder, _) => {
            let options = EmbeddingLoadOptions::default();
            let told = metal_backend::describe_embedding_model(folder, &options);
            told.ok().map(|info| Described::Embedding(Box::new(info)))
        }
        Place::Transcription(folder) => {
            let options = TranscriptionLoadOptions::default();
            let told = metal_backend::describe_transcription_model(folder, &options);
            told.ok().map(|info| Described::Transcription(Box::new(info)))
        }
        Place::Speech(folder) => {
            let told = metal_backend::describe_speech_model(folder, &SpeechLoadOptions::default());
            told.ok().map(|info| Described::Speech(Box::new(info)))
        }
    })
}

/// Settings by models' names. They hold for models that come later, too.
pub struct Naming {
    /// Further names, each with the name of its model.
    pub aliases: Vec<(String, String)>,
    /// The names of models that stay.
    pub pins: Vec<String>,
}

impl Naming {
    /// The table's entry of a model.
    pub fn entry(&self, one: &Named, described: Option<Described>) -> Entry {
        let of_this = self.aliases.iter().filter(|(_, name)| *name == one.name);
        Entry {
            aliases: of_this.map(|(alias, _)| alias.clone()).collect(),
            makes: one.place.makes(),
            pinned: self.pins.contains(&one.name),
            described,
            ..Entry::text(&one.name)
        }
    }
}
