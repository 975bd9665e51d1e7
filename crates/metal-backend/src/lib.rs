//! Placeholder.
#![forbid(unsafe_code)]
pub mod text;
