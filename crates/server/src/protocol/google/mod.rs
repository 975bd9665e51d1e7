//! Google's endpoints, as its Gemini API has them.

pub mod action;
mod config;
mod contents;
pub mod error;
pub mod generate;
pub mod models;
mod names;
mod schema;
pub mod tables;
mod tools;
mod wire;
