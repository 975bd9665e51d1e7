//! Tokenizers, templates, constraints and answers, by files and by goldens.
#![allow(clippy::unwrap_used, reason = "a fixture that fails is a test that fails")]

mod conversions;
mod detokenizer;
mod files;
mod formats;
mod frame;
mod goldens;
mod injection;
mod json_schema_suite;
mod mlx_lm;
mod stop;
