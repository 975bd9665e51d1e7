//! Endpoints that OpenAI does not have: text and ids, labels, attention, the server's end.

pub mod classify;
mod given;
pub mod inspect;
pub mod rerank;
pub mod shutdown;
pub mod tables;
pub mod text;
