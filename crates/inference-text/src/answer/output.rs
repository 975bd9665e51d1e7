//! The pieces found so far.

use super::call::Call;
use super::piece::Piece;

/// Collects pieces; neighbours of one kind become one.
#[derive(Debug, Default)]
pub struct Output {
    pieces: Vec<Piece>,
    calls: usize,
}

impl Output {
    pub fn content(&mut self, text: &str) {
        if text.is_empty() {
            return;
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

    /// The pieces since the last time.
    pub fn take(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.pieces)
    }
}
