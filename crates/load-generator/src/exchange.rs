//! One request and its streamed answer, with the times at which its text came.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;

use crate::answer::{Usage, read};
use crate::error::{Error, Result};
use crate::form::{Answer, Form};
use crate::frames::Frames;
use crate::http::{Connection, Server, lost, whole};
use crate::lines::Line;

/// Asks a server.
#[derive(Debug)]
pub struct Asker {
    /// The server.
    pub server: Server,
    /// Fields that all requests have.
    pub form: Form,
    /// After so long a request is given up.
    pub timeout: Duration,
}

/// A whole answer.
#[derive(Debug)]
pub struct Streamed {
    /// When each frame with text was read.
    pub texts: Vec<Instant>,
    /// When `[DONE]` was read.
    pub done: Instant,
    /// Usage as the server counted it; `None` where it reports none.
    pub usage: Option<Usage>,
}

impl Asker {
    /// Asks `line` on the connection in `slot`, which is taken away when it cannot be used again.
    ///
    /// # Errors
    /// The failure in place of a whole answer.
    pub async fn stream(
        &self,
        slot: &mut Option<Connection>,
        line: &Line,
        answer: Answer,
    ) -> Result<Streamed> {
        let path = self.server.path(line.api.path());
        let body = self.form.body(line, answer);
        let streamed = tokio::time::timeout(self.timeout, async {
            read_stream(self.server.post(slot, &path, body).await?).await
        });
        let streamed = streamed.await.unwrap_or(Err(Error::Timeout(self.timeout)));
        if streamed.is_err() {
            *slot = None;
        }
        streamed
    }

    /// The prompt tokens of `line`, by the usage of an answer of one token.
    ///
    /// # Errors
    /// The failure in place of an answer; an answer without usage.
    pub async fn count(&self, slot: &mut Option<Connection>, line: &Line) -> Result<usize> {
        let path = self.server.path(line.api.path());
        let body = self.form.body(line, Answer::Count);
        let counted = tokio::time::timeout(self.timeout, async {
            whole(self.server.post(slot, &path, body).await?.into_body()).await
        });
        let usage = read(&counted.await.unwrap_or(Err(Error::Timeout(self.timeout)))?)?.usage;
        usage.map(|usage| usage.prompt_tokens).ok_or_else(|| {
            let reason = "the server's answers have no usage, so that prompts cannot be counted: \
                          send ids (`--prompt-ids`), or your own requests (`--requests-file`)";
            Error::Answer(reason.to_owned())
        })
    }
}

async fn read_stream(response: Response<Incoming>) -> Result<Streamed> {
    let media = response.headers().get(CONTENT_TYPE).and_then(|media| media.to_str().ok());
    if !media.unwrap_or_default().starts_with("text/event-stream") {
        let media = media.unwrap_or("no content type").to_owned();
        return Err(Error::Answer(format!(
            "the server answered with {media} in place of text/event-stream: it does not stream"
        )));
    }
    let mut body = response.into_body();
    let mut frames = Frames::default();
    let (mut texts, mut done, mut usage) = (Vec::new(), None, None);
    while let Some(frame) = body.frame().await {
        let now = Instant::now();
        let data = match frame.map(|frame| frame.into_data()) {
            Ok(Ok(data)) => data,
            Ok(Err(_trailers)) => continue,
            // All was said.
            Err(_) if done.is_some() => break,
            Err(error) => return Err(lost(&error)),
        };
        frames.feed(&data)?;
        while let Some(data) = frames.next() {
            if data == b"[DONE]" {
                done = done.or(Some(now));
                continue;
            }
            let event = read(data)?;
            if event.text {
                texts.push(now);
            }
            usage = event.usage.or(usage);
        }
    }
    match done {
        Some(done) => Ok(Streamed { texts, done, usage }),
        None => Err(Error::Unfinished { texts: texts.len() }),
    }
}
