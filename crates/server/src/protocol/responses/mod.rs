//! OpenAI's responses: answers made of items, in typed events, which the server can keep.

pub mod create;
mod echo;
pub mod error;
mod input;
mod output;
mod parts;
pub mod store;
pub mod stored;
pub mod tables;
mod tool_choice;
mod tools;
mod wire;
