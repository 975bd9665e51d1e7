//! OpenAI's endpoints.

pub mod chat;
mod chat_answer;
pub mod completions;
pub mod embeddings;
mod logprobs;
mod messages;
pub mod models;
mod options;
mod response_format;
pub mod tables;
pub mod template;
mod tool_choice;
