//! Requests to an embedding model: options of its load, of vectors and of scores.

use std::str::FromStr;

use crate::{CancelToken, Dtype, Error, LoadOptions, Result};

/// How the vectors of a text's tokens become the vector of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooling {
    /// The first token's.
    Cls,
    /// The last token's.
    Last,
    /// The mean of all.
    Mean,
    /// The largest of each value.
    Max,
    /// The sum of all, over the root of their number.
    MeanSqrt,
    /// The mean of all, the token at position `i`, from 1 on, weighing `i`.
    WeightedMean,
}

impl Pooling {
    /// All of them.
    pub const ALL: [Pooling; 6] = [
        Pooling::Cls,
        Pooling::Last,
        Pooling::Mean,
        Pooling::Max,
        Pooling::MeanSqrt,
        Pooling::WeightedMean,
    ];

    /// The name that sentence-transformers gives it.
    pub fn as_str(self) -> &'static str {
        match self {
            Pooling::Cls => "cls",
            Pooling::Last => "lasttoken",
            Pooling::Mean => "mean",
            Pooling::Max => "max",
            Pooling::MeanSqrt => "mean_sqrt_len_tokens",
            Pooling::WeightedMean => "weightedmean",
        }
    }
}

impl FromStr for Pooling {
    type Err = Error;

    /// The pooling of that name; `last` is another name of `lasttoken`.
    fn from_str(name: &str) -> Result<Pooling> {
        let name = if name == "last" { "lasttoken" } else { name };
        Pooling::ALL.into_iter().find(|pooling| pooling.as_str() == name).ok_or_else(|| {
            let known = Pooling::ALL.map(Pooling::as_str).join(", ");
            invalid("pooling", format!("`{name}` is not one of {known}"))
        })
    }
}

/// The treatment of a text that has more tokens than the model takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Truncate {
    /// It is refused with [`Error::PromptTooLong`].
    #[default]
    Refuse,
    /// Its end is left out.
    End,
    /// Its beginning is left out.
    Start,
}

impl FromStr for Truncate {
    type Err = Error;

    /// `none`, `end` or `start`.
    fn from_str(name: &str) -> Result<Truncate> {
        match name {
            "none" => Ok(Truncate::Refuse),
            "end" => Ok(Truncate::End),
            "start" => Ok(Truncate::Start),
            _ => Err(invalid("truncate", format!("`{name}` is not one of none, end, start"))),
        }
    }
}

/// How an embedding model is loaded. A backend that does not honour a set option refuses it by
/// name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EmbeddingLoadOptions {
    /// The backend's name; `None`: the first available one.
    pub backend: Option<String>,
    /// The type that weights and activations are held in; `None`: the checkpoint's own.
    pub dtype: Option<Dtype>,
    /// How tokens become one vector; `None`: as the model's files say.
    pub pooling: Option<Pooling>,
    /// The most tokens of a text, at most the model's own; `None`: as the model's files say.
    pub max_tokens: Option<usize>,
    /// Bytes that weights and activations may take together; `None`, or more than the device has:
    /// what it has.
    pub memory_limit: Option<u64>,
    /// Requests that may wait before further ones are refused with [`Error::QueueFull`]; `None`: as
    /// many as come.
    pub queue_limit: Option<usize>,
    /// Threads that compute on a CPU, for all models of the process; `None`: all that it has.
    pub threads: Option<usize>,
}

impl EmbeddingLoadOptions {
    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with the first bad option's name.
    pub fn validate(&self) -> Result<()> {
        if self.max_tokens == Some(0) {
            return Err(invalid("max_tokens", "0 tokens are no text".into()));
        }
        // What all kinds of model have is checked once.
        let (memory_limit, threads) = (self.memory_limit, self.threads);
        LoadOptions { memory_limit, threads, ..LoadOptions::default() }.validate()
    }
}

/// A text to be embedded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbedInput {
    /// As it is written. A prompt comes before it, and the model's own tokens around it.
    Text(String),
    /// Its token ids. Nothing is added to them.
    Ids(Vec<u32>),
}

impl From<&str> for EmbedInput {
    fn from(text: &str) -> EmbedInput {
        EmbedInput::Text(text.to_owned())
    }
}

/// How texts are embedded. Unset is the model's own default
/// ([`EmbeddingModelInfo`](crate::EmbeddingModelInfo)).
#[derive(Clone, Debug, Default)]
pub struct EmbedOptions {
    /// The name of the model's prompt that is put before each text; see
    /// [`EmbeddingModelInfo::prompts`](crate::EmbeddingModelInfo::prompts).
    pub prompt_name: Option<String>,
    /// A text that is put before each text, in place of one of the model's prompts.
    pub prompt: Option<String>,
    /// Values of a vector: the first so many of the model's.
    pub dimensions: Option<usize>,
    /// Scales vectors to length 1, after the cut to `dimensions` where there is one.
    pub normalize: Option<bool>,
    /// The treatment of a text with too many tokens.
    pub truncate: Truncate,
    /// The most tokens of a text, where the model takes more.
    pub max_tokens: Option<usize>,
    /// Ends the work between two batches.
    pub cancel: CancelToken,
}

impl EmbedOptions {
    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with the first bad option's name.
    pub fn validate(&self) -> Result<()> {
        if self.prompt_name.is_some() && self.prompt.is_some() {
            let reason = "given together with `prompt`: choose one";
            return Err(invalid("prompt_name", reason.into()));
        }
        if self.dimensions == Some(0) {
            return Err(invalid("dimensions", "a vector has at least 1 value".into()));
        }
        if self.max_tokens == Some(0) {
            return Err(invalid("max_tokens", "a text has at least 1 token".into()));
        }
        Ok(())
    }
}

/// A query and a document that may answer it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextPair {
    /// The search query.
    pub query: String,
    /// The document found for it.
    pub document: String,
}

/// How pairs are scored. Unset is the model's own default.
#[derive(Clone, Debug, Default)]
pub struct ScoreOptions {
    /// The description of a fitting document, for models that take an instruction.
    pub instruction: Option<String>,
    /// The treatment of a pair with too many tokens: the document loses them.
    pub truncate: Truncate,
    /// Ends the work between two batches.
    pub cancel: CancelToken,
}

fn invalid(option: &'static str, reason: String) -> Error {
    Error::InvalidOption { option, reason }
}
