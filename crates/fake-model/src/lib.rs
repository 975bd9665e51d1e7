//! A model for tests: it says what a test tells it to, as slowly as the test wants, and remembers
//! what it was asked. It is written against the contract alone, so that tests of programs need no
//! engine.
//!
//! ```
//! use fake_model::FakeModel;
//! use inference_core::{GenerateOptions, TextModel};
//!
//! let model = FakeModel::says(&["The", " fox"]);
//! let generation = model.generate(&"Who?".into(), &GenerateOptions::default())?;
//! assert_eq!(generation.collect_text()?.0, "The fox");
//! assert_eq!(model.seen.options().len(), 1);
//! # Ok::<(), inference_core::Error>(())
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a lock is poisoned where a test failed already")]

mod attention;
mod backend;
mod model;
mod seen;
mod speech;

pub use backend::FakeBackend;
pub use model::{FIRST_MARK, FakeModel, PICTURE, PICTURE_IDS, SOUND, SOUND_IDS, all_but};
pub use seen::Seen;
pub use speech::{FIRST_ID, Line, prompt_logprobs};
