//! From answers to a response, whole or in events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt, Stream as Events, StreamExt, stream};
use inference_core::PrefillProgress;

use super::wire::{Form, Frame, Wire};
use crate::error::{ApiError, Result};
use crate::http::response::text_response;
use crate::run::answers::Answers;
use crate::run::part::Part;
use crate::run::state::blocking;

/// Between two events that tell how far a prompt is read.
const PROGRESS: Duration = Duration::from_millis(250);

/// The response that holds the whole answers.
///
/// # Errors
/// The first failure, which ends the others.
pub async fn whole<W: Wire>(answers: Answers, mut wire: W) -> Result<Response> {
    let (said, usage) = answers.whole().await?;
    // Log probabilities may make it long.
    let text = blocking(move || Ok(wire.whole(said, usage).to_string())).await?;
    Ok(text_response(StatusCode::OK, "application/json", text))
}

/// Answers in events.
pub struct Stream<W> {
    answers: Answers,
    wire: W,
    ready: VecDeque<Result<Frame>>,
    begun: bool,
    ended: bool,
    /// How much of each answer's prompt is told to be read; empty where none is told.
    reads: Vec<Read>,
}

/// How much of a prompt is told to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Nothing,
    Some,
    All,
}

impl<W: Wire> Stream<W> {
    /// The events that `wire` writes of `answers`.
    pub fn new(answers: Answers, wire: W) -> Self {
        Stream {
            answers,
            wire,
            ready: VecDeque::new(),
            begun: false,
            ended: false,
            reads: Vec::new(),
        }
    }

    /// This stream, which tells how far prompts are read where that is asked for.
    pub fn telling_progress(self, tells_progress: bool) -> Self {
        let count = if tells_progress { self.answers.count() } else { 0 };
        Stream { reads: vec![Read::Nothing; count], ..self }
    }

    /// The next event; `None` after the last one.
    async fn next(&mut self) -> Option<Result<Frame>> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.ended {
                return None;
            }
            let Some(next) = self.answer().await else { continue };
            // Only now, so that a failure before the first token can still be the whole answer.
            if !self.begun && !matches!(next, Some(Err(_))) {
                self.begin();
            }
            match next {
                Some(Ok((index, parts))) => {
                    self.read_all(index);
                    self.wire.used(self.answers.progress());
                    let frames = self.wire.say(index, parts);
                    self.add(frames);
                }
                Some(Err(error)) => {
                    self.ended = true;
                    self.ready.push_back(Err(error));
                }
                None => {
                    self.ended = true;
                    let frames = self.wire.end(self.answers.usage());
                    self.add(frames);
                }
            }
        }
    }

    /// The next part of the answers; `None` where that is how far a prompt is read.
    async fn answer(&mut self) -> Option<Option<Result<(usize, Vec<Part>)>>> {
        if self.reads.is_empty() {
            return Some(self.answers.next().await);
        }
        match tokio::time::timeout(PROGRESS, self.answers.next()).await {
            Ok(next) => Some(next),
            Err(_) => {
                if let Some((index, progress)) = self.answers.prefill() {
                    if !self.begun {
                        self.begin();
                    }
                    self.read(index, progress);
                }
                None
            }
        }
    }

    /// Tells how far the prompt of answer `index` is read, and first what a cache held of it.
    fn read(&mut self, index: usize, progress: PrefillProgress) {
        if self.reads[index] == Read::Nothing {
            let cached =
                PrefillProgress { processed: progress.cached, elapsed: Duration::ZERO, ..progress };
            let frames = self.wire.read(index, cached);
            self.add(frames);
        }
        let is_all = progress.processed >= progress.total;
        self.reads[index] = if is_all { Read::All } else { Read::Some };
        let frames = self.wire.read(index, progress);
        self.add(frames);
    }

    /// Tells that the prompt of answer `index`, which has begun, is read, unless that was told.
    fn read_all(&mut self, index: usize) {
        if self.reads.get(index).is_none_or(|read| *read == Read::All) {
            return;
        }
        if let Some(progress) = self.answers.prefill_of(index) {
            self.read(index, PrefillProgress { processed: progress.total, ..progress });
        }
        self.reads[index] = Read::All;
    }

    /// Ends the stream after a panic: nothing that it holds may be relied on.
    fn failed(&mut self) -> ApiError {
        self.ended = true;
        self.ready.clear();
        ApiError::panicked()
    }

    fn begin(&mut self) {
        self.begun = true;
        let frames = self.wire.begin();
        self.add(frames);
    }

    fn add(&mut self, frames: Vec<Frame>) {
        self.ready.extend(frames.into_iter().map(Ok));
    }

    /// The response. A failure within the first `keep_alive` is a response of its own; later, when
    /// the stream has begun, it is an event.
    ///
    /// # Errors
    /// That failure.
    pub async fn respond(mut self, keep_alive: Duration) -> Result<Response> {
        match tokio::time::timeout(keep_alive, self.next()).await {
            Ok(Some(Err(error))) => return Err(error),
            Ok(Some(first)) => self.ready.push_front(first),
            Ok(None) => {}
            // The client shall see that it is heard.
            Err(_) if self.begun => {}
            Err(_) => self.begin(),
        }
        Ok(match self.wire.form() {
            Form::Events => self.events(keep_alive),
            Form::Lines => as_it_comes(self.lines(keep_alive)),
            Form::Array => as_it_comes(self.array(keep_alive)),
        })
    }

    fn events(self, keep_alive: Duration) -> Response {
        let idle = self.wire.idle();
        let frames = stream::unfold(self, |mut stream| async {
            let frame = stream.frame().await?;
            Some((frame, stream))
        });
        events(frames, idle, keep_alive)
    }

    fn lines(self, keep_alive: Duration) -> Response {
        let lines = stream::unfold(self, move |mut stream| async move {
            let frame = match tokio::time::timeout(keep_alive, stream.frame()).await {
                Ok(frame) => frame?,
                Err(_) => stream.wire.idle(),
            };
            Some((Ok::<_, Infallible>(line(frame)), stream))
        });
        text_response(StatusCode::OK, "application/x-ndjson", Body::from_stream(lines))
    }

    fn array(self, keep_alive: Duration) -> Response {
        // In front of each item, and of the end; nothing comes behind that.
        let parts = stream::unfold((self, Some("[")), move |(mut stream, before)| async move {
            let before = before?;
            let (text, next) = match tokio::time::timeout(keep_alive, stream.frame()).await {
                Ok(Some(Frame::Data(data))) => (format!("{before}{data}"), Some(",\n")),
                Ok(Some(Frame::Event(_, data))) => (format!("{before}{data}"), Some(",\n")),
                // Between values, JSON takes any blanks.
                Ok(Some(Frame::Comment(_))) | Err(_) => ("\n".to_owned(), Some(before)),
                Ok(None) if before == "[" => ("[]".to_owned(), None),
                Ok(None) => ("]".to_owned(), None),
            };
            Some((Ok::<_, Infallible>(text), (stream, next)))
        });
        text_response(StatusCode::OK, "application/json", Body::from_stream(parts))
    }

    /// The next frame, which says what went wrong where something did; `None` after the last one.
    async fn frame(&mut self) -> Option<Frame> {
        let next = AssertUnwindSafe(self.next()).catch_unwind().await;
        let next = next.unwrap_or_else(|_| Some(Err(self.failed())))?;
        Some(next.unwrap_or_else(|error| {
            self.answers.tally().failed(&error);
            self.wire.fail(&error)
        }))
    }
}

fn line(frame: Frame) -> String {
    match frame {
        Frame::Data(data) => data + "\n",
        Frame::Event(_, data) => format!("{data}\n"),
        Frame::Comment(_) => String::new(),
    }
}

/// A response of events; after a silence of `keep_alive`, `idle` is sent.
pub fn events(
    frames: impl Events<Item = Frame> + Send + 'static,
    idle: Frame,
    keep_alive: Duration,
) -> Response {
    let idle = KeepAlive::new().interval(keep_alive).event(event(idle));
    let events = frames.map(|frame| Ok::<_, Infallible>(event(frame)));
    as_it_comes(Sse::new(events).keep_alive(idle).into_response())
}

/// The response, of which proxies shall hand on what comes as it comes.
pub fn as_it_comes(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn event(frame: Frame) -> Event {
    match frame {
        Frame::Data(data) => Event::default().data(data),
        Frame::Event(name, data) => Event::default().event(name).data(data.to_string()),
        Frame::Comment(text) => Event::default().comment(text),
    }
}
