//! The endpoints of llama.cpp's server that are its own, for clients that were written for it.

mod bias;
pub mod completion;
pub mod error;
pub mod facts;
pub mod models;
pub mod prompts;
pub mod slots;
pub mod tables;
mod wire;
