//! OpenAI's endpoints.

pub mod batch_tables;
pub mod batches;
pub mod chat;
mod chat_wire;
pub mod completions;
mod completions_wire;
pub mod embeddings;
pub mod error;
pub mod files;
pub mod foreign;
pub mod head;
pub mod images;
mod images_made;
pub mod logprobs;
pub mod messages;
pub mod models;
pub mod options;
pub mod response_format;
pub mod speech;
pub mod structured;
pub mod tables;
pub mod template;
mod told;
pub mod tool_choice;
mod transcript_wire;
pub mod transcriptions;
