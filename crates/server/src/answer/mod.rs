//! From generated text to reasoning, content and tool calls, piece by piece.
//!
//! Each model family writes tool calls and reasoning with marks of its own. [`Family::probe`] tells
//! which from the chat template, [`AnswerParser`] takes the marks out of the text as it comes, and
//! [`tool_constraint`] makes a grammar of them.
//!
//! Three laws hold for every family. The pieces, concatenated by kind and index, do not depend on
//! how the text was cut. Text that is no complete call of a known tool, but looked like one, comes
//! back as content. The time is linear in the text's length, whatever the text.

mod call;
mod candidate;
mod gemma;
mod grammar;
mod harmony;
mod json_scan;
mod marks;
mod output;
mod probe;
mod python;
mod tagged;
#[cfg(test)]
mod tests;
mod xml;

pub use grammar::{
    MarkIds, ToolChoice, answer_constraint, answer_constraint_with, mark_id, tool_constraint,
    tool_constraint_with,
};

use call::Tools;
use harmony::Harmony;
use serde_json::Value;
use tagged::Tagged;

/// How a model family writes reasoning and tool calls.
///
/// All but [`Harmony`](Family::Harmony) write reasoning between `<think>` and `</think>` at the
/// answer's beginning, where they reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// No tool calls.
    Plain,
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, and in it or alone
    /// `<function=NAME><parameter=KEY>VALUE</parameter></function>`.
    Hermes,
    /// `{"name": …, "parameters": {…}}` as the whole answer, several separated by `;`, with or
    /// without `<|python_tag|>`; or `[NAME(KEY=VALUE)]`, also between `<|python_start|>` and
    /// `<|python_end|>`.
    Llama3,
    /// `[TOOL_CALLS][{"name": …, "arguments": {…}}]` or `[TOOL_CALLS]NAME[ARGS]{…}`; reasoning
    /// between `[THINK]` and `[/THINK]`.
    Mistral,
    /// `<start_function_call>call:NAME{KEY:VALUE}<end_function_call>`, the same between
    /// `<|tool_call>` and `<tool_call|>`; a block fenced as `tool_code` or `json`; or as the whole
    /// answer JSON or `[NAME(KEY=VALUE)]`.
    Gemma,
    /// Channels: `<|channel|>analysis<|message|>…<|end|>`, and a recipient `to=functions.NAME`.
    Harmony,
}

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

/// Tells reasoning, content and tool calls apart in the text of one answer.
///
/// The text must show special tokens ([`GenerateOptions::special_tokens`]); those that end the
/// generation are not part of it.
///
/// ```
/// use server::answer::{AnswerParser, Family, Piece};
///
/// let tools = ["time".to_owned()];
/// let mut parser = AnswerParser::new(Family::Hermes, "<|im_start|>assistant\n", &tools);
/// let mut pieces = parser.push("One moment.\n<tool_call>{\"name\": \"time\", ");
/// pieces.extend(parser.push("\"arguments\": {\"zone\": \"CET\"}}</tool_call>"));
/// pieces.extend(parser.finish());
/// assert_eq!(
///     pieces,
///     [
///         Piece::Content("One moment.".into()),
///         Piece::ToolCall { index: 0, name: "time".into() },
///         Piece::Arguments { index: 0, text: "{\"zone\": \"CET\"}".into() },
///     ]
/// );
/// ```
///
/// [`GenerateOptions::special_tokens`]: inference_core::GenerateOptions::special_tokens
#[derive(Debug)]
pub struct AnswerParser {
    machine: Machine,
}

#[derive(Debug)]
enum Machine {
    Tagged(Tagged),
    Harmony(Harmony),
}

impl AnswerParser {
    /// A parser for the answer to `prompt_text`, the rendered prompt, whose end tells whether
    /// reasoning or a channel is open already. Calls of other names than `tools` are content;
    /// where `tools` is empty, no calls are looked for.
    pub fn new(family: Family, prompt_text: &str, tools: &[String]) -> AnswerParser {
        let tools = tools.iter().map(|name| (name.clone(), None));
        AnswerParser::of(family, prompt_text, Tools::new(tools))
    }

    /// As [`new`](Self::new), with the tools' schemas: they tell what the values of formats mean
    /// that write arguments without their types (`<parameter=KEY>VALUE</parameter>`).
    pub fn with_schemas(family: Family, prompt_text: &str, tools: &[Tool]) -> AnswerParser {
        let tools = tools.iter().map(|tool| (tool.name.clone(), Some(tool.parameters.clone())));
        AnswerParser::of(family, prompt_text, Tools::new(tools))
    }

    fn of(family: Family, prompt_text: &str, tools: Tools) -> AnswerParser {
        let machine = match family {
            Family::Harmony => Machine::Harmony(Harmony::new(prompt_text, tools)),
            _ => Machine::Tagged(Tagged::new(family, prompt_text, tools)),
        };
        AnswerParser { machine }
    }

    /// What `text`, the next part of the answer, makes certain. A possible call is held back until
    /// it is complete.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        match &mut self.machine {
            Machine::Tagged(machine) => machine.push(text),
            Machine::Harmony(machine) => machine.push(text),
        }
    }

    /// What was held back, now that the answer is over.
    pub fn finish(&mut self) -> Vec<Piece> {
        match &mut self.machine {
            Machine::Tagged(machine) => machine.finish(),
            Machine::Harmony(machine) => machine.finish(),
        }
    }
}
