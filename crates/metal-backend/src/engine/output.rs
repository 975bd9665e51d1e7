//! From ids to the tokens that a consumer sees: detokenizing, stop strings, settled text.

use std::collections::VecDeque;

use inference_core::Token;
use inference_text::{Detokenizer, StopMatcher};

/// The text side of one sequence.
///
/// A token is handed over once its text is settled: while characters are incomplete, or while the
/// end of the text may begin a stop string, the last token waits.
pub(crate) struct TextState {
    detokenizer: Detokenizer,
    stops: StopMatcher,
    waiting: VecDeque<Token>,
}

impl TextState {
    /// The state before the first id.
    pub fn new(detokenizer: Detokenizer, stops: StopMatcher) -> TextState {
        TextState { detokenizer, stops, waiting: VecDeque::new() }
    }

    /// Adds a token, whose text is filled in here. Returns the index of the stop string that its
    /// text completes.
    pub fn push(&mut self, token: Token) -> Option<usize> {
        let piece = self.detokenizer.push(token.id);
        self.waiting.push_back(token);
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
