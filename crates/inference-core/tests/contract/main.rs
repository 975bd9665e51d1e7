//! The contract's promises, each as a test.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a helper fails its test")]

mod cancellation;
mod capabilities;
mod discovery;
mod error_texts;
mod fake;
mod generate_each;
mod generation;
mod plain_data;
mod registry;
mod validation;
