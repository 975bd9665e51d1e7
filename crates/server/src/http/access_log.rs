//! The log of requests: a line for each as it ends, be it that its client has left.

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

use super::traced::{Facts, Traced};
use crate::error::ApiError;
use crate::run::part::Usage;
use crate::run::tally::Tally;

/// The longest reason, and the longest path, that is logged, in bytes.
const LONGEST: usize = 300;

/// The endpoint of a path that leads nowhere.
const OTHER: &str = "other";

/// The address of the client.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// The part of a request that is logged, once it ends. Dropped before, its client has left.
pub struct Entry {
    /// Its id.
    pub id: String,
    /// The route that it was for; `other` where it has none, since that could be anything.
    pub endpoint: String,
    /// Its path, where it has no route.
    path: Option<String>,
    peer: Option<SocketAddr>,
    method: Method,
    began: Instant,
    tally: Tally,
    /// Its spans, where any are sent.
    traced: Option<Traced>,
    /// The status of its answer.
    status: Option<u16>,
    /// The reason of a refusal.
    reason: Option<String>,
    /// Its answer streams.
    streams: bool,
    is_complete: bool,
}

impl Entry {
    /// The entry of `request`, which has this id, and these spans, and begins now.
    pub fn new(request: &Request, id: String, traced: Option<Traced>) -> Entry {
        let route = request.extensions().get::<MatchedPath>();
        let path = request.uri().path();
        Entry {
            id,
            endpoint: route.map_or(OTHER, MatchedPath::as_str).to_owned(),
            path: route.is_none().then(|| cut(path).to_owned()),
            peer: request.extensions().get::<Peer>().map(|peer| peer.0),
            method: request.method().clone(),
            began: Instant::now(),
            tally: Tally::default(),
            traced,
            status: None,
            reason: None,
            streams: false,
            is_complete: false,
        }
    }

    /// The time at which the request began.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Told of what is computed for the request.
    pub fn tally(&self) -> Tally {
        self.tally.clone()
    }

    /// Logs `response`, whose error this was where it is one; a stream as it ends.
    pub fn log(mut self, response: Response, error: Option<&ApiError>) -> Response {
        self.status = Some(response.status().as_u16());
        self.reason = error.map(|error| error.loggable().to_owned());
        self.streams = response.body().size_hint().exact().is_none();
        self.is_complete = !self.streams;
        match self.streams {
            true => response.map(|body| Body::new(Followed { body, entry: self })),
            false => response,
        }
    }

    /// How the answer ended, where that is not certain from its status.
    fn ended(&self, has_failed: bool) -> Option<&'static str> {
        match (self.is_complete, self.streams) {
            (_, true) if has_failed => Some("failed"),
            (true, true) => Some("complete"),
            (true, false) => None,
            (false, _) => Some("the client left"),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let told = self.tally.get();
        let error = self.reason.as_deref().or(told.error.as_deref()).map(cut);
        if let Some(traced) = &self.traced {
            let facts = Facts {
                id: &self.id,
                endpoint: &self.endpoint,
                path: self.path.as_deref(),
                peer: self.peer.map(|peer| peer.ip()),
                method: &self.method,
                began: self.began.into_std(),
                status: self.status,
                ended: self.ended(told.error.is_some()),
                error,
            };
            traced.end(&facts, &told);
        }
        let usage = told.usage;
        let count = |of: fn(&Usage) -> usize| usage.as_ref().map(|usage| of(usage) as u64);
        tracing::info!(
            target: "access",
            id = self.id,
            trace = self.traced.as_ref().map(Traced::trace),
            peer = self.peer.map(tracing::field::display),
            method = self.method.as_str(),
            endpoint = self.endpoint,
            path = self.path,
            status = self.status,
            ended = self.ended(told.error.is_some()),
            milliseconds = self.began.elapsed().as_millis() as u64,
            model = told.model,
            prompt_tokens = count(|usage| usage.prompt),
            cached_tokens = count(|usage| usage.cached),
            generated_tokens = count(|usage| usage.completion),
            prompt_tokens_per_second = usage.as_ref().and_then(Usage::prompt_rate),
            generated_tokens_per_second = usage.as_ref().and_then(Usage::decode_rate),
            error,
        );
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

/// The body of a stream, whose end is logged.
struct Followed {
    // Dropped first: what it holds tells the last count as it goes.
    body: Body,
    entry: Entry,
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
            self.entry.is_complete = true;
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
