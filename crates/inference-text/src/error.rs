//! Errors between text and ids.

use std::path::PathBuf;

use inference_core::Error;

/// An error of the text side; each names the file, option or limit it is about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file of the model folder cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file of the model folder is not there.
    #[error("`{}` is missing: {remedy}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The files in its place, and what to do.
        remedy: String,
    },
    /// A file is larger than anything legitimate.
    #[error("`{}` has {size} bytes, at most {limit} are read", path.display())]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A file is not what its name promises.
    #[error("`{}` is not valid: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// The text is too long to be tokenized in one call.
    #[error("text has {size} bytes, at most {limit} are tokenized at once")]
    InputTooLarge {
        /// Size of the text in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The normalizer in tokenizer.json multiplies the text.
    #[error(
        "text of {size} bytes: the tokenizer's normalizer `{step}` makes more than {limit} bytes \
         of it"
    )]
    Normalizer {
        /// The step's name in tokenizer.json.
        step: String,
        /// Size of the text in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The tokenizer refused the text.
    #[error("cannot tokenize the text: {0}")]
    Encode(String),
    /// The tokenizer refused the ids.
    #[error("cannot decode the ids: {0}")]
    Decode(String),
    /// The chat template is not a valid template, or failed while rendering.
    #[error("chat template, line {line}: {reason}")]
    Template {
        /// Line in the template, counted from 1; 0 if unknown.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// The chat template called `raise_exception`: it refuses these messages.
    #[error("the chat template refuses the messages: {0}")]
    Raised(String),
    /// The chat template exceeds a bound on steps, memory or output.
    #[error("chat template exceeds its bounds: {0}")]
    TemplateBounds(String),
    /// The conversation cannot be rendered, whatever the template.
    #[error("`{name}`: {reason}")]
    Input {
        /// The argument, with its index where it has one.
        name: String,
        /// The fault.
        reason: String,
    },
    /// A stop string is empty.
    #[error("`stop[{index}]` is empty")]
    EmptyStop {
        /// Its position in the list.
        index: usize,
    },
}

impl From<TextError> for Error {
    /// A fault of a file is one of loading, any other one of the prompt.
    fn from(error: TextError) -> Error {
        let load = |path: PathBuf, reason| Error::Load { path: path.display().to_string(), reason };
        match error {
            TextError::Read { path, source } => load(path, source.to_string()),
            TextError::Invalid { path, reason } => load(path, reason),
            TextError::Missing { path, remedy } => {
                load(path, format!("the file is missing; {remedy}"))
            }
            TextError::FileTooLarge { ref path, .. } => load(path.clone(), error.to_string()),
            other => Error::Prompt(other.to_string()),
        }
    }
}
