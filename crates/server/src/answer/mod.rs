//! What a model's text says: reasoning, content and tool calls.

use inference_core::{Constraint, TextModel};

/// How a model family writes reasoning and tool calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Neither: the text is the answer.
    #[default]
    Plain,
}

impl Family {
    /// The family of a loaded model.
    pub fn probe(_model: &dyn TextModel) -> Family {
        Family::Plain
    }
}

/// The name of a tool that may be called.
pub type ToolName = String;

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "a plain answer has content alone")]
pub enum Piece {
    /// What the model thinks before it answers.
    Reasoning(String),
    /// What it answers.
    Content(String),
    /// A call begins.
    ToolCall {
        /// Which call of the answer, from 0.
        index: usize,
        /// The tool.
        name: String,
    },
    /// More of a call's arguments, which are JSON.
    Arguments {
        /// Which call of the answer, from 0.
        index: usize,
        /// The next part of the JSON text.
        text: String,
    },
}

/// Reads an answer as it comes.
#[derive(Debug)]
pub struct AnswerParser;

impl AnswerParser {
    /// A parser of the answer to `prompt_text`, the rendered prompt.
    pub fn new(_family: Family, _prompt_text: &str, _tools: &[ToolName]) -> AnswerParser {
        AnswerParser
    }

    /// The pieces that `text` settles.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        if text.is_empty() { Vec::new() } else { vec![Piece::Content(text.to_owned())] }
    }

    /// What was held back.
    pub fn finish(&mut self) -> Vec<Piece> {
        Vec::new()
    }
}

/// Which tools the answer may or must call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// None.
    None,
    /// The model decides.
    #[default]
    Auto,
    /// At least one.
    Required,
    /// This one.
    Named(ToolName),
}

/// What holds the answer to `choice`; `None` where the model is free.
///
/// # Errors
/// Why this family cannot be held to it.
pub fn tool_constraint(
    _family: Family,
    _tools: &[inference_core::Value],
    choice: &ToolChoice,
    _strict: bool,
    _parallel: bool,
) -> Result<Option<Constraint>, String> {
    match choice {
        ToolChoice::None | ToolChoice::Auto => Ok(None),
        ToolChoice::Required | ToolChoice::Named(_) => {
            Err("this model's way of calling tools is not known".to_owned())
        }
    }
}
