//! One parser for the answers of all families.

use std::ops::Range;

use inference_core::AnswerReader;

use super::call::Tools;
use super::family::Family;
use super::harmony::{HARMONY, Harmony, MUSE};
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
    family: Family,
    machine: Machine,
}

#[derive(Debug)]
enum Machine {
    Tagged(Box<Tagged>),
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

    /// A parser like that of [`new`](Self::new), with the tools' schemas: they tell what the values
    /// of formats mean that write arguments without their types
    /// (`<parameter=KEY>VALUE</parameter>`).
    pub fn with_schemas(family: Family, prompt_text: &str, tools: &[Tool]) -> AnswerParser {
        let tools = tools.iter().map(|tool| (tool.name.clone(), Some(tool.parameters.clone())));
        AnswerParser::of(family, prompt_text, Tools::new(tools))
    }

    fn of(family: Family, prompt_text: &str, tools: Tools) -> AnswerParser {
        let machine = match family {
            Family::Harmony => Machine::Harmony(Harmony::new(&HARMONY, prompt_text, tools)),
            Family::Muse => Machine::Harmony(Harmony::new(&MUSE, prompt_text, tools)),
            _ => Machine::Tagged(Box::new(Tagged::new(family, prompt_text, tools))),
        };
        AnswerParser { family, machine }
    }

    /// Takes the next text of the answer and returns the pieces that are now certain. A possible
    /// call is held back until it is complete.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        match &mut self.machine {
            Machine::Tagged(machine) => machine.push(text),
            Machine::Harmony(machine) => machine.push(text),
        }
    }

    /// Ends the answer and returns the pieces held back until now.
    pub fn finish(&mut self) -> Vec<Piece> {
        match &mut self.machine {
            Machine::Tagged(machine) => machine.finish(),
            Machine::Harmony(machine) => machine.finish(),
        }
    }

    /// Returns the ranges of content found since the last call, as bytes of all that was pushed.
    /// Ranges that touch are one text.
    pub(super) fn take_content(&mut self) -> Vec<Range<usize>> {
        match &mut self.machine {
            Machine::Tagged(machine) => machine.take_content(),
            Machine::Harmony(machine) => machine.take_content(),
        }
    }

    /// How many bytes of the answer it is certain of what they are.
    pub(super) fn certain(&self) -> usize {
        match &self.machine {
            Machine::Tagged(machine) => machine.certain(),
            Machine::Harmony(machine) => machine.certain(),
        }
    }
}

impl AnswerReader for AnswerParser {
    fn push(&mut self, text: &str) -> Vec<Piece> {
        AnswerParser::push(self, text)
    }

    fn finish(&mut self) -> Vec<Piece> {
        AnswerParser::finish(self)
    }

    fn needs_special_tokens(&self) -> bool {
        self.family != Family::Plain
    }
}

#[cfg(test)]
mod tests {
    use inference_core::{Answering, CancelToken, Generation, Token};

    use super::{AnswerParser, Family};

    #[test]
    fn an_answer_in_channels_is_read_without_their_marks() {
        let (sender, generation) = Generation::channel(vec![1], CancelToken::new());
        let texts = [
            "<|channel|>",
            "analysis",
            "<|message|>",
            "Hm.",
            "<|end|>",
            "<|start|>",
            "assistant",
            "<|channel|>",
            "final",
            "<|message|>",
            "Blue",
            ".",
        ];
        for (id, text) in (0..).zip(texts) {
            sender.send(Token { id, text: text.to_owned(), ..Token::default() });
        }
        drop(sender);
        let parser = AnswerParser::new(Family::Harmony, "<|start|>assistant", &[]);
        let mut answering = Answering::new(generation, Box::new(parser));
        let pieces = answering.by_ref().filter(Result::is_ok).count();
        assert!(pieces >= 2, "{pieces}");
        let answer = answering.answer();
        assert_eq!((answer.reasoning.as_str(), answer.content.as_str()), ("Hm.", "Blue."));
    }
}
