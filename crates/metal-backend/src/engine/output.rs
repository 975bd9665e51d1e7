//! From ids to the tokens that a consumer sees: detokenizing, stop strings, settled text.

use std::collections::VecDeque;

use inference_core::Token;
use inference_text::answer::{AnswerParser, AnswerStops};
use inference_text::{Detokenizer, Held, StopMatcher};

/// The text side of one sequence.
///
/// A token is handed over once its text is settled: while characters are incomplete, or while the
/// end of the text may begin a stop string, the last token waits.
pub(crate) struct TextState {
    detokenizer: Detokenizer,
    stops: Stops,
    waiting: VecDeque<Token>,
    /// Tokens to come whose text completes no stop string.
    passing: usize,
}

/// The part of a text in which stop strings count.
pub(crate) enum Stops {
    /// In all of the text.
    Text(StopMatcher),
    /// In what an answer says.
    Answer(Box<AnswerStops>),
}

impl Stops {
    /// In the content that `parser` finds, or in all of the text.
    pub fn new(stops: StopMatcher, parser: Option<AnswerParser>) -> Stops {
        match parser {
            Some(parser) => Stops::Answer(Box::new(AnswerStops::new(stops, parser))),
            None => Stops::Text(stops),
        }
    }

    fn push(&mut self, piece: &str) -> Held {
        match self {
            Stops::Text(stops) => stops.push(piece),
            Stops::Answer(stops) => stops.push(piece),
        }
    }

    fn pass(&mut self, piece: &str) -> Held {
        match self {
            Stops::Text(stops) => stops.pass(piece),
            Stops::Answer(stops) => stops.pass(piece),
        }
    }

    fn is_holding(&self) -> bool {
        match self {
            Stops::Text(stops) => stops.is_holding(),
            Stops::Answer(stops) => stops.is_holding(),
        }
    }

    fn finish(&mut self) -> Held {
        match self {
            Stops::Text(stops) => stops.finish(),
            Stops::Answer(stops) => stops.finish(),
        }
    }
}

impl TextState {
    /// The state before the first id.
    pub fn new(detokenizer: Detokenizer, stops: Stops) -> TextState {
        TextState { detokenizer, stops, waiting: VecDeque::new(), passing: 0 }
    }

    /// This state, with stop strings that count behind the first `count` tokens.
    pub fn passing(self, count: usize) -> TextState {
        TextState { passing: count, ..self }
    }

    /// Adds a token, whose text is filled in here. Returns the index of the stop string that its
    /// text completes.
    pub fn push(&mut self, token: Token) -> Option<usize> {
        let piece = self.detokenizer.push(token.id);
        self.waiting.push_back(token);
        if self.passing > 0 {
            self.passing -= 1;
            let held = self.stops.pass(&piece);
            self.append(&held.text);
            return None;
        }
        self.release(&piece)
    }

    /// Ends the text. Returns the index of the stop string that the end completes.
    pub fn finish(&mut self) -> Option<usize> {
        let piece = self.detokenizer.finish();
        let matched = self.release(&piece);
        let rest = self.stops.finish();
        self.append(&rest.text);
        matched.or(rest.matched)
    }

    /// The tokens whose text is settled; all of them once the text has `ended`.
    pub fn settled(&mut self, ended: bool) -> impl Iterator<Item = Token> + '_ {
        let holds = !ended && (self.detokenizer.is_holding() || self.stops.is_holding());
        let count = self.waiting.len().saturating_sub(usize::from(holds));
        self.waiting.drain(..count)
    }

    fn release(&mut self, piece: &str) -> Option<usize> {
        let held = self.stops.push(piece);
        self.append(&held.text);
        held.matched
    }

    fn append(&mut self, text: &str) {
        if let Some(last) = self.waiting.back_mut() {
            last.text.push_str(text);
        }
    }
}
