//! Conversations to text and ids: chat templates, and formats for checkpoints without one.

mod call_form;
mod clock;
mod continuing;
mod conversation;
mod effort;
mod fallback;
mod format;
mod results;
mod template;

pub use clock::LocalTime;
pub use effort::Effort;
pub use format::{ChatFormat, ChatInput, Rendered};
pub use template::ChatTemplate;
