//! How a protocol writes the answers of one request.

use inference_core::PrefillProgress;
use serde_json::Value as Json;

use crate::error::ApiError;
use crate::run::part::{Part, Usage};
use crate::run::said::Said;

/// A server-sent event, or a comment between two.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// An event that has data alone.
    Data(String),
    /// An event with a name.
    Event(&'static str, Json),
    /// A comment, which clients skip.
    Comment(&'static str),
}

/// The format of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Server-sent events.
    Events,
    /// Lines, each of which is the data of a frame (`application/x-ndjson`).
    Lines,
    /// One array of JSON, whose items are the data of frames.
    Array,
}

/// Writes the answers of one request, in a stream or whole. Answers are numbered from 0.
pub trait Wire: Send + 'static {
    /// The format of its streams.
    fn form(&self) -> Form {
        Form::Events
    }
    /// The frames that a stream begins with.
    fn begin(&mut self) -> Vec<Frame>;
    /// Takes note of the usage so far, before the next parts of an answer.
    fn used(&mut self, _progress: Usage) {}
    /// The frames that tell how far the prompt of answer `index` is read.
    fn read(&mut self, _index: usize, _progress: PrefillProgress) -> Vec<Frame> {
        Vec::new()
    }
    /// The frames of the next parts of answer `index`.
    fn say(&mut self, index: usize, parts: Vec<Part>) -> Vec<Frame>;
    /// The frames that end a stream, once every answer has ended.
    fn end(&mut self, usage: Usage) -> Vec<Frame>;
    /// The last event of a stream that fails.
    fn fail(&self, error: &ApiError) -> Frame;
    /// The frame that keeps a silent stream alive.
    fn idle(&self) -> Frame;
    /// The body of the whole answers.
    fn whole(&mut self, answers: Vec<Said>, usage: Usage) -> Json;
}
