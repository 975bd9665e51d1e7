//! Endpoints that OpenAI does not have: text and ids, labels, attention.

pub mod classify;
mod given;
pub mod inspect;
pub mod rerank;
pub mod tables;
pub mod text;
