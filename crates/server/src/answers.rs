//! From generations to answers, whole or in chunks: both are made of the same pieces.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::CACHE_CONTROL;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt, stream};
use inference_core::Token;
use serde_json::{Value as Json, json};

use crate::error::{ApiError, Result};
use crate::run::{Event, Run, Usage};

/// One answer as it grows. Chunks are entries of `choices`, without their `index`.
pub trait Answer: Send + 'static {
    /// What is sent before the first token.
    fn begin(&mut self) -> Vec<Json>;
    /// What some of the prompt's tokens with their log probabilities add, where they were asked for.
    fn prompt(&mut self, tokens: Vec<Token>) -> Vec<Json>;
    /// What `token` adds; `false` where the answer needs no more.
    fn push(&mut self, token: Token) -> (Vec<Json>, bool);
    /// What is sent last, with the reason why it ended.
    fn finish(&mut self, reason: &'static str) -> Vec<Json>;
    /// The entry of `choices` of a whole answer, after [`finish`](Answer::finish).
    fn whole(self) -> Json;
}

/// What all objects of one response have in common.
#[derive(Clone, Debug)]
pub struct Head {
    /// The response's id.
    pub id: String,
    /// `chat.completion`, `text_completion`, …
    pub object: &'static str,
    /// Seconds since 1970.
    pub created: u64,
    /// The served model's name.
    pub model: String,
}

impl Head {
    /// An object with `choices`.
    pub fn object(&self, choices: Vec<Json>) -> Json {
        json!({
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": concat!("ml-", env!("CARGO_PKG_VERSION")),
            "choices": choices,
        })
    }
}

/// Reads every generation to its end.
///
/// # Errors
/// The first failure, which ends the others.
pub async fn collect<A: Answer>(mut run: Run, mut answers: Vec<A>) -> Result<(Vec<A>, Usage)> {
    answers.iter_mut().for_each(|answer| drop(answer.begin()));
    while let Some((index, event)) = run.next().await {
        match event {
            Event::Prompt(tokens) => drop(answers[index].prompt(tokens)),
            Event::Token(token) => {
                if !answers[index].push(token).1 {
                    run.stop(index);
                    answers[index].finish("stop");
                }
            }
            Event::End(reason) => drop(answers[index].finish(reason)),
            Event::Failed(error) => return Err(error),
        }
    }
    Ok((answers, run.usage()))
}

/// Answers in chunks.
pub struct Chunks<A> {
    run: Run,
    answers: Vec<A>,
    head: Head,
    include_usage: bool,
    ready: VecDeque<Result<String>>,
    begun: bool,
    ended: bool,
}

impl<A: Answer> Chunks<A> {
    /// The chunks of `answers`, one for each generation of `run`.
    pub fn new(run: Run, answers: Vec<A>, head: Head, include_usage: bool) -> Self {
        let ready = VecDeque::new();
        Chunks { run, answers, head, include_usage, ready, begun: false, ended: false }
    }

    /// The next event's data; `None` after the last one.
    async fn next(&mut self) -> Option<Result<String>> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Some(chunk);
            }
            if self.ended {
                return None;
            }
            let event = self.run.next().await;
            // Only now, so that a failure before the first token can still be the whole answer.
            if !self.begun && !matches!(event, Some((_, Event::Failed(_)))) {
                self.begin();
            }
            match event {
                Some((index, Event::Prompt(tokens))) => {
                    let chunks = self.answers[index].prompt(tokens);
                    self.add(index, chunks);
                }
                Some((index, Event::Token(token))) => {
                    let (chunks, more) = self.answers[index].push(token);
                    self.add(index, chunks);
                    if !more {
                        self.run.stop(index);
                        let last = self.answers[index].finish("stop");
                        self.add(index, last);
                    }
                }
                Some((index, Event::End(reason))) => {
                    let last = self.answers[index].finish(reason);
                    self.add(index, last);
                }
                Some((_, Event::Failed(error))) => {
                    self.ended = true;
                    self.ready.push_back(Err(error));
                }
                None => self.end(),
            }
        }
    }

    /// Ends the stream after a panic: nothing that it holds may be relied on.
    fn failed(&mut self) -> ApiError {
        self.ended = true;
        self.ready.clear();
        ApiError::internal("the request failed inside the server")
    }

    fn begin(&mut self) {
        self.begun = true;
        for index in 0..self.answers.len() {
            let first = self.answers[index].begin();
            self.add(index, first);
        }
    }

    fn add(&mut self, index: usize, chunks: Vec<Json>) {
        for mut choice in chunks {
            choice["index"] = json!(index);
            let mut object = self.head.object(vec![choice]);
            if self.include_usage {
                object["usage"] = Json::Null;
            }
            self.ready.push_back(Ok(object.to_string()));
        }
    }

    fn end(&mut self) {
        self.ended = true;
        if self.include_usage {
            let mut object = self.head.object(Vec::new());
            object["usage"] = self.run.usage().to_json();
            self.ready.push_back(Ok(object.to_string()));
        }
        self.ready.push_back(Ok("[DONE]".to_owned()));
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
        let events = stream::unfold(self, |mut chunks| async {
            let next = AssertUnwindSafe(chunks.next()).catch_unwind().await;
            let next = next.unwrap_or_else(|_| Some(Err(chunks.failed())));
            let data = next?.unwrap_or_else(|error: ApiError| error.body().to_string());
            Some((Ok::<_, std::convert::Infallible>(SseEvent::default().data(data)), chunks))
        });
        let comments = KeepAlive::new().interval(keep_alive).text("waiting");
        let mut response = Sse::new(events).keep_alive(comments).into_response();
        // Proxies shall hand events on as they come.
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(response)
    }
}
