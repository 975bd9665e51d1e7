//! The pieces found so far.

use std::ops::Range;

use super::call::Call;
use super::piece::Piece;

/// Collects pieces; neighbours of one kind become one.
#[derive(Debug, Default)]
pub struct Output {
    pieces: Vec<Piece>,
    calls: usize,
    /// Ranges of content in the answer that were not reported yet.
    content: Vec<Range<usize>>,
}

impl Output {
    /// Adds content, which ends before byte `end` of the answer.
    pub fn content(&mut self, text: &str, end: usize) {
        if text.is_empty() {
            return;
        }
        let start = end - text.len();
        match self.content.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => self.content.push(start..end),
        }
        match self.pieces.last_mut() {
            Some(Piece::Content(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Content(text.to_owned())),
        }
    }

    pub fn reasoning(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.pieces.last_mut() {
            Some(Piece::Reasoning(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Reasoning(text.to_owned())),
        }
    }

    pub fn call(&mut self, call: Call) {
        let index = self.calls;
        self.calls += 1;
        self.pieces.push(Piece::ToolCall { index, name: call.name });
        self.pieces.push(Piece::Arguments { index, text: call.arguments });
    }

    /// Returns the ranges of content found since the last call.
    pub fn take_content(&mut self) -> Vec<Range<usize>> {
        std::mem::take(&mut self.content)
    }

    /// The pieces since the last time.
    pub fn take(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.pieces)
    }
}
