//! The contract's promises, each as a test.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a helper fails its test")]

mod batches;
mod cancellation;
mod capabilities;
mod classify;
mod discovery;
mod embeddings;
mod error_texts;
mod generation;
mod images;
mod load_progress;
mod plain_data;
mod registry;
mod validation;
