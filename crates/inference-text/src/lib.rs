//! Text for language models: what lies between a program's text and a model's ids.
//!
//! - [`Tokenizer`], [`Detokenizer`] and [`StopMatcher`]: text in, ids out, and back.
//! - [`ChatFormat`] and [`ChatTemplate`]: conversations as a model's own template writes them.
//! - [`constraint`]: JSON schemas, regular expressions and grammars that a text is held to.
//! - [`answer`]: reasoning, content and tool calls, told apart in what a model wrote.
//! - [`json`]: the contract's values from those of `serde_json`, and back.
//! - `GenerationStream`, with the feature `stream`: a generation as a stream of `futures`.
//!
//! The crate knows no tensors, no engine and no HTTP. Behaviour follows transformers 5 and mlx-lm,
//! whose results the tests hold as golden files. Where the crate differs (special tokens inside
//! messages, the detokenizer) the item says so.

#![forbid(unsafe_code)]

pub mod answer;
mod around;
mod byte_spelling;
mod chat;
pub mod constraint;
mod conversion;
mod decoder_steps;
mod detokenizer;
mod error;
mod files;
mod frame;
mod inner;
pub mod json;
mod load;
mod marks;
mod normalizer;
mod pairs;
pub mod panics;
mod pipeline;
mod reasoning;
mod source;
mod special_tokens;
mod stop;
#[cfg(feature = "stream")]
mod stream;
mod token_bytes;
mod tokenizer;

pub use chat::{ChatFormat, ChatInput, ChatTemplate, Effort, LocalTime, Rendered};
pub use conversion::other_tokenizers;
pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use files::{Files, Folder, ReadError};
pub use frame::Frame;
pub use load::MAX_ADDED_TOKENS;
pub use stop::{Held, StopMatcher};
#[cfg(feature = "stream")]
pub use stream::GenerationStream;
pub use tokenizer::{AddSpecial, MAX_INPUT_BYTES, SkipSpecial, Tokenizer};
