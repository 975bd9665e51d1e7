//! Stop strings in an answer: they count in what it says.

use super::parser::AnswerParser;
use crate::stop::{Held, StopMatcher};

/// Finds the first stop string in an answer's content. What the model thinks, calls and marks a
/// part with is none, and a stop string that goes over a part's end is not met.
///
/// Takes the text as the model writes it and releases it so, as a [`StopMatcher`] does. Text that
/// may become content is held back until it is certain what it is.
#[derive(Debug)]
pub struct AnswerStops {
    parser: AnswerParser,
    /// Looks through one run of content.
    matcher: StopMatcher,
    /// Without any text yet.
    fresh: StopMatcher,
    /// Text that was pushed and not released; it begins at byte `base` of the answer.
    held: String,
    base: usize,
    /// The part of the content that the matcher has seen last: up to where it has released it, and
    /// to its end.
    released: usize,
    end: usize,
    /// Up to this byte of the answer, no stop string ends.
    passed: usize,
    done: bool,
}

impl AnswerStops {
    /// Looks for the strings of `stops`, which has seen no text, in the answer that `parser` reads.
    pub fn new(stops: StopMatcher, parser: AnswerParser) -> AnswerStops {
        let (held, fresh) = (String::new(), stops.clone());
        let (base, released, end, passed, done) = (0, 0, 0, 0, false);
        AnswerStops { parser, matcher: stops, fresh, held, base, released, end, passed, done }
    }

    /// Adds a piece of text. After a match nothing is released any more.
    pub fn push(&mut self, piece: &str) -> Held {
        if self.done {
            return Held::default();
        }
        self.held.push_str(piece);
        self.parser.push(piece);
        if let Some(held) = self.look() {
            return held;
        }
        let certain = match self.matcher.is_holding() {
            true => self.released.min(self.parser.certain()),
            false => self.parser.certain(),
        };
        self.release(certain, None)
    }

    /// Adds a piece of text in which no stop string ends. One that begins in it may end later.
    pub fn pass(&mut self, piece: &str) -> Held {
        self.passed = self.base + self.held.len() + piece.len();
        self.push(piece)
    }

    /// Returns true while text is held back.
    pub fn is_holding(&self) -> bool {
        !self.done && !self.held.is_empty()
    }

    /// Ends the text: what was held back is released, or is a match after all.
    pub fn finish(&mut self) -> Held {
        if self.done {
            return Held::default();
        }
        self.parser.finish();
        let held = self.look().or_else(|| self.end_run());
        self.done = true;
        held.unwrap_or_else(|| self.release(self.base + self.held.len(), None))
    }

    /// Looks through the content that was found since the last time.
    fn look(&mut self) -> Option<Held> {
        for content in self.parser.take_content() {
            if content.start != self.end {
                if let Some(held) = self.end_run() {
                    return Some(held);
                }
                self.matcher = self.fresh.clone();
                self.released = content.start;
            }
            self.end = content.end;
            let passed = self.passed.clamp(content.start, content.end);
            let text = |start, end| &self.held[start - self.base..end - self.base];
            self.released += self.matcher.pass(text(content.start, passed)).text.len();
            let found = self.matcher.push(text(passed, content.end));
            self.released += found.text.len();
            if found.matched.is_some() {
                return Some(self.release(self.released, found.matched));
            }
        }
        None
    }

    /// Ends a run of content: what the matcher holds may be a stop string that a longer one begins
    /// with.
    fn end_run(&mut self) -> Option<Held> {
        let found = self.matcher.finish();
        self.released += found.text.len();
        found.matched.map(|index| self.release(self.released, Some(index)))
    }

    /// Releases the text before byte `end` of the answer.
    fn release(&mut self, end: usize, matched: Option<usize>) -> Held {
        let text = self.held.drain(..end.saturating_sub(self.base)).collect::<String>();
        self.base += text.len();
        self.done |= matched.is_some();
        Held { text, matched }
    }
}
