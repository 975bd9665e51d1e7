//! The parts of an answer, and the tools that it may call.

use serde_json::Value;

/// A tool that may be called.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The JSON schema of its arguments.
    pub parameters: Value,
    /// Whether a call's arguments must follow the schema to the letter.
    pub strict: bool,
}

/// A part of an answer, in the order in which the model wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// What the model thinks before it answers.
    Reasoning(String),
    /// The answer.
    Content(String),
    /// A call begins.
    ToolCall {
        /// The call's position among the answer's calls, from 0.
        index: usize,
        /// The tool's name.
        name: String,
    },
    /// The arguments of the call `index`: pieces of one JSON object.
    Arguments {
        /// The call's position among the answer's calls, from 0.
        index: usize,
        /// JSON, as the model wrote it where it wrote JSON.
        text: String,
    },
}
