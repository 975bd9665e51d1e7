//! Text in, ids out, and back: tokenizer, chat templates, detokenizer, stop strings.
//!
//! Nothing here knows MLX, models or HTTP. Behaviour follows transformers 5 and
//! mlx-lm, whose results the tests hold as golden files; where this module
//! differs (special tokens inside messages, detokenizer) the item says so.

mod chat;
mod clock;
mod conversation;
mod decoder_steps;
mod detokenizer;
mod error;
mod fallback;
mod files;
mod load;
mod marks;
mod pipeline;
mod stop;
mod template;
mod token_bytes;
mod tokenizer;

pub use chat::{ChatFormat, ChatInput, Rendered};
pub use clock::LocalTime;
pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use stop::{Held, StopMatcher};
pub use template::ChatTemplate;
pub(crate) use token_bytes::TokenBytes;
pub use tokenizer::{AddSpecial, MAX_INPUT_BYTES, SkipSpecial, Tokenizer};
