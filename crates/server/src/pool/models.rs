//! The models of a server as its operator gives them, and their loader.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use inference_core::{
    Capabilities, EmbeddingModel, EmbeddingModelInfo, Error, ImageModel, ImageModelInfo, ModelInfo,
    SpeechModel, SpeechModelInfo, TextModel, TranscriptionModel, TranscriptionModelInfo,
    WeightsRead,
};

/// Loads the models of a server. Its methods may take long: they are called on threads that may
/// wait, one load at a time.
pub trait Loader: Send + Sync {
    /// Bytes that the model of this number takes once it is loaded. Those of [`Models::entries`]
    /// are numbered from 0, and those of each [`Change::added`] from where the last ones ended.
    /// Called before each load, so that what does not fit is not begun.
    ///
    /// # Errors
    /// Why it cannot be loaded.
    fn needs(&self, index: usize) -> inference_core::Result<u64>;

    /// Loads the model of this number.
    ///
    /// # Errors
    /// Why it cannot be loaded.
    fn load(&self, index: usize) -> inference_core::Result<Model>;

    /// How far the load of the model of this number is; `None` where that is not known. It does not
    /// wait, and may be called while a load runs.
    fn progress(&self, _index: usize) -> Option<WeightsRead> {
        None
    }

    /// The models that have come and gone since the last call. Called now and then, never twice at
    /// once.
    fn changes(&self) -> Change {
        Change::default()
    }

    /// Nothing is left of a model that was loaded. Called after each, so that memory can be given
    /// back to the system.
    fn dropped(&self) {}
}

/// Models that came and went while the server ran.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Those that came. They have the next numbers, and names that no other model has.
    pub added: Vec<Entry>,
    /// The numbers of those that went. No number comes back.
    pub removed: Vec<usize>,
}

/// A model that was loaded.
pub enum Model {
    /// It answers in text.
    Text(Box<dyn TextModel>),
    /// It makes pictures.
    Image(Arc<dyn ImageModel>),
    /// It embeds texts, or scores pairs of them.
    Embedding(Arc<dyn EmbeddingModel>),
    /// It transcribes speech.
    Transcription(Arc<dyn TranscriptionModel>),
    /// It speaks.
    Speech(Arc<dyn SpeechModel>),
}

/// The kind of a model's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Makes {
    /// Text.
    Text,
    /// Pictures.
    Pictures,
    /// Vectors of texts.
    Vectors,
    /// Scores of documents for a query.
    Scores,
    /// Transcripts of speech.
    Transcripts,
    /// Speech.
    Speech,
}

impl Makes {
    /// The kind of an embedding model's outputs: vectors or scores.
    pub fn of(info: &EmbeddingModelInfo) -> Makes {
        if info.scores { Makes::Scores } else { Makes::Vectors }
    }
}

/// A description of a model that is not loaded.
#[derive(Clone, Debug)]
pub enum Described {
    /// Of one that answers in text: what it is, and what it honours.
    Text(Box<ModelInfo>, Capabilities),
    /// Of one that makes pictures.
    Image(Box<ImageModelInfo>),
    /// Of one that embeds texts or scores pairs of them.
    Embedding(Box<EmbeddingModelInfo>),
    /// Of one that transcribes speech.
    Transcription(Box<TranscriptionModelInfo>),
    /// Of one that speaks.
    Speech(Box<SpeechModelInfo>),
}

/// A model that a server has, loaded or not.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name under which it is served.
    pub name: String,
    /// Further names for it; `*`: any that no other model has.
    pub aliases: Vec<String>,
    /// The kind of its outputs.
    pub makes: Makes,
    /// It is loaded before the server is ready.
    pub at_start: bool,
    /// Once it is loaded it stays.
    pub pinned: bool,
    /// Its description, where one was found out without loading it.
    pub described: Option<Described>,
}

impl Entry {
    /// A model for text under `name`, which is loaded when a request names it.
    pub fn text(name: impl Into<String>) -> Entry {
        Entry {
            name: name.into(),
            aliases: Vec::new(),
            makes: Makes::Text,
            at_start: false,
            pinned: false,
            described: None,
        }
    }
}

/// The models of a server.
pub struct Models {
    /// The models.
    pub entries: Vec<Entry>,
    /// Who loads them.
    pub loader: Box<dyn Loader>,
    /// Bytes that loaded models may take together.
    pub memory: u64,
    /// A model that nobody used for so long is unloaded; `None`: only where another needs its
    /// memory.
    pub idle: Option<Duration>,
    /// How many requests may wait for loads.
    pub waiting: usize,
    /// How long each of them waits; none at all where it is zero.
    pub wait: Duration,
}

/// Why a model is not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadFailure {
    /// Its loader's reason.
    Error(Error),
    /// The code that loads it panicked.
    Panicked,
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadFailure::Error(error) => error.fmt(f),
            LoadFailure::Panicked => f.write_str("loading the model failed"),
        }
    }
}
