//! A loaded model, and what was found out about it.

use std::sync::Arc;

use inference_core::{
    ChatOptions, EmbeddingModel, EngineStatus, Error, ImageModel, Message, SpeechModel, TextModel,
    TranscriptionModel,
};
use inference_text::Effort;
use inference_text::answer::Family;

use super::models::Model;
use crate::config::Tools;

/// A model for text and what was found out about it.
#[derive(Clone)]
pub struct Loaded {
    /// The model.
    pub model: Arc<dyn TextModel>,
    /// How it writes reasoning and tool calls.
    pub family: Family,
    /// How its template takes the reasoning effort.
    pub effort: Effort,
    /// The place of instructions about tools, of which its template knows nothing; `None` where
    /// they are given by the template, or not at all.
    pub tools_in: Option<ToolsIn>,
}

/// The place of instructions about tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolsIn {
    /// The system's message.
    System,
    /// The first message of the user, where the template takes none of the system.
    User,
}

impl ToolsIn {
    /// Finds out whether the template of `model` shows what the system says.
    fn probe(model: &dyn TextModel) -> ToolsIn {
        const WORD: &str = "look_up_42";
        let messages = [Message::system(WORD), Message::user("Where?")];
        let shown = model.render_chat(&messages, &ChatOptions::default());
        match shown.is_ok_and(|prompt| prompt.text.contains(WORD)) {
            true => ToolsIn::System,
            false => ToolsIn::User,
        }
    }
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
    /// It speaks.
    Speech(Arc<dyn SpeechModel>),
}

impl Any {
    /// Finds out what a model that was just loaded can do, where `tools` says which are given
    /// tools.
    pub fn new(model: Model, tools: Tools) -> Any {
        match model {
            Model::Text(model) => {
                let family = Family::probe(model.as_ref());
                let effort = Effort::probe(model.as_ref());
                let is_told = tools == Tools::Generic && family == Family::Plain;
                let tools_in = is_told.then(|| ToolsIn::probe(model.as_ref()));
                Any::Text(Loaded { model: model.into(), family, effort, tools_in })
            }
            Model::Image(model) => Any::Image(model),
            Model::Embedding(model) => Any::Embedding(model),
            Model::Transcription(model) => Any::Transcription(model),
            Model::Speech(model) => Any::Speech(model),
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
            Any::Speech(model) => Some(model.info().weight_bytes).filter(|bytes| *bytes > 0),
        }
    }

    /// The current status of its engine.
    pub fn status(&self) -> EngineStatus {
        match self {
            Any::Text(loaded) => loaded.model.status(),
            Any::Image(model) => model.status(),
            Any::Embedding(model) => model.status(),
            Any::Transcription(model) => model.status(),
            Any::Speech(model) => model.status(),
        }
    }

    /// Notices for users since the last call.
    pub fn notices(&self) -> Vec<String> {
        match self {
            Any::Text(loaded) => loaded.model.notices(),
            Any::Image(_) | Any::Embedding(_) | Any::Transcription(_) | Any::Speech(_) => {
                Vec::new()
            }
        }
    }

    /// Why it cannot be used any more, where that is so.
    pub fn fault(&self) -> Option<Error> {
        match self {
            Any::Text(loaded) => loaded.model.fault(),
            Any::Image(_) | Any::Embedding(_) | Any::Transcription(_) | Any::Speech(_) => None,
        }
    }

    /// Ends it and gives its memory back.
    pub fn close(&self) {
        match self {
            Any::Text(loaded) => loaded.model.close(),
            Any::Image(model) => model.close(),
            Any::Embedding(model) => model.close(),
            Any::Transcription(model) => model.close(),
            Any::Speech(model) => model.close(),
        }
    }
}
