//! The endpoints of llama.cpp's server that are its own, for clients that were written for it.

pub mod completion;
pub mod facts;
pub mod tables;
mod wire;
