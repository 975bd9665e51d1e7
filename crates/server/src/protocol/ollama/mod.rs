//! Ollama's endpoints.

mod ask;
pub mod chat;
pub mod embed;
pub mod error;
pub mod generate;
mod keep_alive;
mod messages;
pub mod models;
mod options;
pub mod refused;
pub mod tables;
pub mod time;
mod wire;
