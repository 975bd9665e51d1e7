//! Anthropic's endpoints.

pub mod batches;
mod client_tools;
pub mod error;
pub mod messages;
mod output;
pub mod tables;
mod tools;
mod turns;
mod wire;
