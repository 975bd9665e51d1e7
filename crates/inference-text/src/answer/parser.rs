//! One parser for the answers of all families.

use super::call::Tools;
use super::family::Family;
use super::harmony::Harmony;
use super::piece::{Piece, Tool};
use super::tagged::Tagged;

/// Tells reasoning, content and tool calls apart in the text of one answer.
///
/// The text must show special tokens ([`GenerateOptions::special_tokens`]); those that end the
/// generation are not part of it.
///
/// ```
/// use inference_text::answer::{AnswerParser, Family, Piece};
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

    /// A parser like that of [`new`](Self::new), with the tools' schemas: they tell what the values of formats mean
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
