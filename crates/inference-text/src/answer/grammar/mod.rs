//! Grammars that make an answer a call, and that let reasoning come before a constrained answer.

mod answer;
mod arguments;
mod calls;

use inference_core::TextModel;

pub use answer::{answer_constraint, answer_constraint_with, answer_or_calls};
pub use calls::{tool_constraint, tool_constraint_with};

/// Which tools an answer calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// Those that the model wants to.
    #[default]
    Auto,
    /// None.
    None,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// The rule of whitespace between the parts of an answer: what [`is_space`](super::marks::is_space)
/// takes for it.
const SPACE: &str = "SPACE: /[ \\t\\r\\n]{1,4}/\n";

/// Tells the id of a mark that is one token of the model's tokenizer.
pub type MarkIds<'a> = &'a dyn Fn(&str) -> Option<u32>;

/// The id of `mark` where the model's tokenizer has it as one token.
pub fn mark_id(model: &dyn TextModel, mark: &str) -> Option<u32> {
    let ids = model.encode(mark).ok()?;
    // A tokenizer may put a beginning-of-sequence token before any text.
    let before = model.encode("").unwrap_or_default();
    match ids.strip_prefix(before.as_slice()).unwrap_or(&ids) {
        [id] => Some(*id),
        _ => None,
    }
}

/// `text` between quotes, as a grammar has it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// `text` as a regular expression that may stand between slashes.
fn regex(text: &str) -> String {
    text.chars().fold(String::new(), |mut pattern, c| {
        if c.is_ascii_punctuation() && !"<>_".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
        pattern
    })
}
