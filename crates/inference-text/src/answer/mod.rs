//! From generated text to reasoning, content and tool calls, piece by piece.
//!
//! Each model family writes tool calls and reasoning with marks of its own. [`Family::probe`] tells
//! which from the chat template, [`AnswerParser`] takes the marks out of the text as it comes, and
//! [`tool_constraint`] makes a grammar of them.
//!
//! Calls in reasoning are thoughts, unless the answer ends with them before the reasoning is
//! closed.
//!
//! Three laws hold for every family. The pieces, concatenated by kind and index, do not depend on
//! how the text was cut. Text that is no complete call of a known tool, but looked like one, comes
//! back as content. The time is linear in the text's length, whatever the text.

mod bounded;
mod call;
mod candidate;
mod closing;
mod draft;
mod elements;
mod family;
mod format;
mod gemma;
mod grammar;
mod harmony;
mod header;
mod json_scan;
mod marks;
mod output;
mod parser;
mod piece;
mod probe;
mod python;
mod stops;
mod strings;
mod tagged;
mod tags;
#[cfg(test)]
mod tests;
mod typed;

pub use bounded::bounded_reasoning;
pub use family::Family;
pub use grammar::{
    MarkIds, ToolChoice, answer_constraint, answer_constraint_with, answer_or_calls, mark_id,
    tool_constraint, tool_constraint_with,
};
pub use parser::AnswerParser;
pub use piece::{Piece, Tool};
pub use stops::AnswerStops;
