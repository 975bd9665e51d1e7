//! From the tokens of one generation to the parts of one answer.

use std::sync::Arc;

use inference_core::{FinishReason, TextModel, Token};
use inference_text::answer::{AnswerParser, Piece};

use super::part::{End, Part, Scored};

/// Reads one generation.
pub struct Reading {
    /// Tells reasoning and calls from text; `None` where all is text.
    parser: Option<AnswerParser>,
    /// Decodes the tokens of log probabilities; `None` where none are told.
    scores: Option<Arc<dyn TextModel>>,
    /// The most calls of the answer.
    most_calls: usize,
    calls: usize,
    tokens: Tokens,
}

/// Tokens, by what became of their text.
#[derive(Clone, Copy, Debug, Default)]
struct Tokens {
    /// Of thoughts, with the mark that opens them.
    reasoning: usize,
    /// It is not certain yet what their text is.
    open: usize,
}

impl Tokens {
    /// One more token, whose text made `pieces` certain.
    fn add(&mut self, pieces: &[Piece]) {
        self.open += 1;
        let Some(last) = pieces.last() else { return };
        if matches!(last, Piece::Reasoning(_)) {
            self.reasoning += self.open;
        }
        self.open = 0;
    }
}

/// An answer's need of further tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It needs more.
    More,
    /// It has all that it may say.
    Nothing,
}

impl Reading {
    /// Reads text as text. Log probabilities are told where there is a model for `scores`.
    pub fn of_text(scores: Option<Arc<dyn TextModel>>) -> Reading {
        Reading { parser: None, scores, most_calls: 0, calls: 0, tokens: Tokens::default() }
    }

    /// Reads reasoning and up to `most_calls` calls with `parser`.
    pub fn of_message(
        parser: AnswerParser,
        scores: Option<Arc<dyn TextModel>>,
        most_calls: usize,
    ) -> Reading {
        Reading { parser: Some(parser), scores, most_calls, calls: 0, tokens: Tokens::default() }
    }

    /// How many of the tokens so far thoughts are made of.
    pub fn reasoning_tokens(&self) -> usize {
        self.tokens.reasoning
    }

    /// The part that some of the prompt's tokens are, where they are told.
    pub fn prompt(&self, tokens: Vec<Token>) -> Vec<Part> {
        let Some(model) = &self.scores else { return Vec::new() };
        let scored = tokens.into_iter().map(|token| Scored::new(model.as_ref(), token));
        vec![Part::Prompt(scored.collect())]
    }

    /// The parts that `token` makes certain.
    pub fn token(&mut self, token: Token) -> (Vec<Part>, Need) {
        let mut parts = Vec::new();
        let text = token.text.clone();
        if let Some(model) = &self.scores {
            parts.push(Part::Token(Scored::new(model.as_ref(), token)));
        }
        match &mut self.parser {
            Some(parser) => {
                let pieces = parser.push(&text);
                self.tokens.add(&pieces);
                let need = self.add(&mut parts, pieces);
                (parts, need)
            }
            None => {
                if !text.is_empty() {
                    parts.push(Part::Text(text));
                }
                (parts, Need::More)
            }
        }
    }

    /// The last parts of an answer whose generation ended for `reason`.
    pub fn end(&mut self, reason: FinishReason) -> Vec<Part> {
        let mut parts = Vec::new();
        let held_back = self.parser.as_mut().map(AnswerParser::finish);
        self.add(&mut parts, held_back.unwrap_or_default());
        parts.push(Part::End(match reason {
            FinishReason::Length | FinishReason::Cancelled => End::Length,
            _ if self.calls > 0 => End::Calls,
            FinishReason::StopText(text) => End::StopText(text),
            FinishReason::EndOfSequence(_) | FinishReason::StopToken(_) => End::Stop,
        }));
        parts
    }

    /// The last parts of an answer that needed no more.
    pub fn enough(&mut self) -> Vec<Part> {
        vec![Part::End(if self.calls > 0 { End::Calls } else { End::Stop })]
    }

    /// Adds `pieces` to `parts`, up to the first call that is one too many.
    fn add(&mut self, parts: &mut Vec<Part>, pieces: Vec<Piece>) -> Need {
        for piece in pieces {
            parts.push(match piece {
                Piece::Reasoning(text) => Part::Reasoning(text),
                Piece::Content(text) => Part::Text(text),
                Piece::ToolCall { index, .. } if index >= self.most_calls => return Need::Nothing,
                Piece::ToolCall { index, name } => {
                    self.calls += 1;
                    Part::Call { index, name }
                }
                Piece::Arguments { index, text } => Part::Arguments { index, text },
            });
        }
        Need::More
    }
}

#[cfg(test)]
mod tests {
    use inference_core::{FinishReason, Token};

    use super::{Need, Reading};
    use crate::run::part::{End, Part};
    use inference_text::answer::{AnswerParser, Family};

    const CALL: &str = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";

    fn reading(most_calls: usize) -> Reading {
        let parser = AnswerParser::new(Family::Hermes, "", &["f".to_owned()]);
        Reading::of_message(parser, None, most_calls)
    }

    fn token(text: &str) -> Token {
        Token { text: text.to_owned(), ..Token::default() }
    }

    #[test]
    fn an_answer_with_calls_ends_for_them() {
        let mut reading = reading(usize::MAX);
        let (parts, need) = reading.token(token(&format!("a{CALL}{CALL}")));
        assert_eq!(need, Need::More);
        let expected = [
            Part::Text("a".into()),
            Part::Call { index: 0, name: "f".into() },
            Part::Arguments { index: 0, text: "{}".into() },
            Part::Call { index: 1, name: "f".into() },
            Part::Arguments { index: 1, text: "{}".into() },
        ];
        assert_eq!(parts, expected);
        assert_eq!(reading.end(FinishReason::EndOfSequence(1)), [Part::End(End::Calls)]);
        assert_eq!(reading.end(FinishReason::Length), [Part::End(End::Length)]);
    }

    #[test]
    fn a_call_too_many_ends_the_answer() {
        let mut reading = reading(1);
        let (parts, need) = reading.token(token(&format!("{CALL}{CALL}")));
        assert_eq!((parts.len(), need), (2, Need::Nothing));
        assert_eq!(reading.enough(), [Part::End(End::Calls)]);
    }

    #[test]
    fn tokens_of_thoughts_are_counted_with_their_mark() {
        let mut reading = reading(1);
        let says = ["<think>", "h", "m", "</think>", "fox", " ran"];
        says.into_iter().for_each(|text| drop(reading.token(token(text))));
        assert_eq!(reading.reasoning_tokens(), 3);
    }

    #[test]
    fn without_a_parser_text_is_text() {
        let mut reading = Reading::of_text(None);
        assert_eq!(reading.token(token(CALL)).0, [Part::Text(CALL.into())]);
        let stop = FinishReason::StopText("x".into());
        assert_eq!(reading.end(stop), [Part::End(End::StopText("x".into()))]);
    }
}
