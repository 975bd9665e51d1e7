//! How to write a backend, by example: a small but complete one that depends on
//! [`inference_core`] alone.
//!
//! The model echoes a text that it was given: it looks for the places where its corpus agrees
//! longest with what was said so far, and continues as the corpus does there. That is a language
//! model without weights, so nothing here stands between the reader and the contract:
//!
//! | part of a backend | here |
//! |---|---|
//! | registering, and loading a folder with named errors | [`EchoBackend`], in `backend.rs` |
//! | the handle that any number of threads may call | [`EchoModel`], in `model.rs` |
//! | the one thread that computes, its queue, and the loop of a generation | `engine.rs` |
//! | characters of several tokens, and stop strings held back | `stream.rs` |
//! | what stands in for the weights | `corpus.rs` |
//!
//! The rules that a backend keeps, and where to see them kept:
//!
//! * **Nothing is silently ignored.** [`LoadOptions::validate`] and [`GenerateOptions::validate`]
//!   refuse values that mean nothing; [`Capabilities::check_load`] and
//!   [`Capabilities::check_generate`] then refuse by name what this backend does not do.
//! * **Refusals come before the work**: `generate` returns an error rather than a generation, and
//!   what goes wrong later is the generation's last item.
//! * **A consumer that goes away stops the work**: the loop asks
//!   [`GenerationSender::is_cancelled`] at every step, and while a request waits its turn.
//! * **The texts of the tokens, concatenated, are the decoded text**: bytes wait for the rest of
//!   their character.
//!
//! ```
//! use std::path::Path;
//! use inference_core::{GenerateOptions, LoadOptions, Prompt, load_model};
//!
//! echo_backend::register()?;
//! # let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("model");
//! let model = load_model(&folder, &LoadOptions::default())?;
//! let options = GenerateOptions { max_tokens: Some(11), ..Default::default() };
//! let (text, outcome) = model.generate(&Prompt::from("The quick fox "), &options)?.collect_text()?;
//! assert_eq!(text, "ran through");
//! assert_eq!(outcome.finish_reason.as_str(), "length");
//! # Ok::<(), inference_core::Error>(())
//! ```
//!
//! [`LoadOptions::validate`]: inference_core::LoadOptions::validate
//! [`GenerateOptions::validate`]: inference_core::GenerateOptions::validate
//! [`Capabilities::check_load`]: inference_core::Capabilities::check_load
//! [`Capabilities::check_generate`]: inference_core::Capabilities::check_generate
//! [`GenerationSender::is_cancelled`]: inference_core::GenerationSender::is_cancelled

#![forbid(unsafe_code)]

mod backend;
mod corpus;
mod engine;
mod model;
mod stream;

pub use backend::{EchoBackend, register};
pub use model::EchoModel;
