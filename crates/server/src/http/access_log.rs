//! The log of requests: a line as an answer begins, and one more as a stream ends.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Error;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use crate::error::{ApiError, Kind};
use crate::run::tally::{Tallied, Tally};

/// The longest reason that is logged, in bytes.
const LONGEST_REASON: usize = 300;

/// The address of the client.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// The part of a request that is logged.
#[derive(Debug)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// The route that it was for; `other` where it has none, since that could be anything.
    pub endpoint: String,
    peer: Option<SocketAddr>,
    method: Method,
    began: Instant,
}

impl Entry {
    /// The entry of `request`, which has this id and begins now.
    pub fn new(request: &Request, id: String) -> Entry {
        let route = request.extensions().get::<MatchedPath>();
        Entry {
            id,
            endpoint: route.map_or("other", MatchedPath::as_str).to_owned(),
            peer: request.extensions().get::<Peer>().map(|peer| peer.0),
            method: request.method().clone(),
            began: Instant::now(),
        }
    }

    /// The time at which the request began.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Logs `response`, whose error this was where it is one. A stream is logged again as it ends.
    pub fn log(self, mut response: Response, error: Option<&ApiError>) -> Response {
        let tally = response.extensions_mut().remove::<Tally>();
        let streams = response.body().size_hint().exact().is_none();
        let told = tally.as_ref().filter(|_| !streams).map(Tally::get);
        tracing::info!(
            target: "access",
            id = self.id,
            peer = self.peer.map(tracing::field::display),
            method = self.method.as_str(),
            endpoint = self.endpoint,
            status = response.status().as_u16(),
            milliseconds = self.began.elapsed().as_millis() as u64,
            prompt_tokens = told.as_ref().map(|told| told.usage.prompt as u64),
            generated_tokens = told.as_ref().map(|told| told.usage.completion as u64),
            error = error.map(reason),
        );
        match streams {
            true => response.map(|body| {
                let is_complete = false;
                Body::new(Followed { body, entry: self, tally, is_complete })
            }),
            false => response,
        }
    }

    fn log_end(&self, tally: Option<&Tally>, is_complete: bool) {
        let told = tally.map(Tally::get);
        let error = told.as_ref().and_then(|told| told.error.as_deref()).map(cut);
        let ended = match (is_complete, error) {
            (_, Some(_)) => "failed",
            (true, None) => "complete",
            (false, None) => "the client left",
        };
        let tokens = |of: fn(&Tallied) -> usize| told.as_ref().map(|told| of(told) as u64);
        tracing::info!(
            target: "access",
            id = self.id,
            endpoint = self.endpoint,
            ended,
            milliseconds = self.began.elapsed().as_millis() as u64,
            prompt_tokens = tokens(|told| told.usage.prompt),
            generated_tokens = tokens(|told| told.usage.completion),
            error,
        );
    }
}

/// The reason of a failure. What templates and tokenizers say may quote a prompt, which is never
/// logged.
fn reason(error: &ApiError) -> &str {
    match error.kind {
        Kind::Prompt => "the prompt cannot be computed",
        _ => cut(&error.message),
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_REASON)]
}

/// The body of a stream, whose end is logged.
struct Followed {
    body: Body,
    entry: Entry,
    tally: Option<Tally>,
    is_complete: bool,
}

impl HttpBody for Followed {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) {
            self.is_complete = true;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        // What the body holds tells its last count as it goes.
        drop(std::mem::take(&mut self.body));
        self.entry.log_end(self.tally.as_ref(), self.is_complete);
    }
}
