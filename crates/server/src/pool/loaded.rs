//! A loaded model, and what was found out about it.

use std::sync::Arc;

use inference_core::{
    EmbeddingModel, EngineStatus, Error, ImageModel, TextModel, TranscriptionModel,
};
use inference_text::Effort;
use inference_text::answer::Family;

use super::models::Model;

/// A model for text and what was found out about it.
#[derive(Clone)]
pub struct Loaded {
    /// The model.
    pub model: Arc<dyn TextModel>,
    /// How it writes reasoning and tool calls.
    pub family: Family,
    /// How its template takes the reasoning effort.
    pub effort: Effort,
}

/// A loaded model of any kind.
#[derive(Clone)]
pub enum Any {
    /// It answers in text.
    Text(Loaded),
    /// It makes pictures.
    Image(Arc<dyn ImageModel>),
    /// It embeds texts, or scores pairs of them.
    Embedding(Arc<dyn EmbeddingModel>),
    /// It transcribes speech.
    Transcription(Arc<dyn TranscriptionModel>),
}

impl Any {
    /// Finds out what a model that was just loaded can do.
    pub fn new(model: Model) -> Any {
        match model {
            Model::Text(model) => {
                let family = Family::probe(model.as_ref());
                let effort = Effort::probe(model.as_ref());
                Any::Text(Loaded { model: model.into(), family, effort })
            }
            Model::Image(model) => Any::Image(model),
            Model::Embedding(model) => Any::Embedding(model),
            Model::Transcription(model) => Any::Transcription(model),
        }
    }

    /// Bytes of its weights; `None` where it does not tell.
    pub fn weight_bytes(&self) -> Option<u64> {
        match self {
            Any::Text(loaded) => Some(loaded.model.info().weight_bytes).filter(|bytes| *bytes > 0),
            // It reads components as it needs them, so that the loader's count is the better one.
            Any::Image(_) => None,
            Any::Embedding(model) => Some(model.info().weight_bytes).filter(|bytes| *bytes > 0),
            Any::Transcription(model) => Some(model.info().weight_bytes).filter(|bytes| *bytes > 0),
        }
    }

    /// The current status of its engine.
    pub fn status(&self) -> EngineStatus {
        match self {
            Any::Text(loaded) => loaded.model.status(),
            Any::Image(model) => model.status(),
            Any::Embedding(model) => model.status(),
            Any::Transcription(model) => model.status(),
        }
    }

    /// Notices for users since the last call.
    pub fn notices(&self) -> Vec<String> {
        match self {
            Any::Text(loaded) => loaded.model.notices(),
            Any::Image(_) | Any::Embedding(_) | Any::Transcription(_) => Vec::new(),
        }
    }

    /// Why it cannot be used any more, where that is so.
    pub fn fault(&self) -> Option<Error> {
        match self {
            Any::Text(loaded) => loaded.model.fault(),
            Any::Image(_) | Any::Embedding(_) | Any::Transcription(_) => None,
        }
    }

    /// Ends it and gives its memory back.
    pub fn close(&self) {
        match self {
            Any::Text(loaded) => loaded.model.close(),
            Any::Image(model) => model.close(),
            Any::Embedding(model) => model.close(),
            Any::Transcription(model) => model.close(),
        }
    }
}
