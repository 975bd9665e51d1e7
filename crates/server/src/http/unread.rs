//! The rest of a request's body, which no handler has read.
//!
//! A connection goes on only behind it. A client that writes its whole request before it reads
//! shall get to see why it was refused.

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Error;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, EXPECT};
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, timeout, timeout_at};

use crate::run::state::State;

/// So many times what a body may have is read and dropped.
const DRAIN_FACTOR: usize = 8;

/// The rest of a body is given up where nothing of it comes for so long.
const SILENCE: Duration = Duration::from_secs(2);

/// A body that nobody has asked for has so long in all: who sends it may be refused for want of a
/// key.
const UNTOUCHED: Duration = Duration::from_secs(5);

/// The bytes that a request declares its body to have.
pub fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Keeps sight of a request's body while a handler reads it. What that leaves comes back here.
pub struct Unread {
    left: Arc<Mutex<Left>>,
    /// The client sends its body only when told to.
    waits: bool,
    /// It is longer than is worth reading.
    too_long: bool,
    most: usize,
}

/// The rest of a body that its reader left.
enum Left {
    Nothing,
    /// Nobody has asked for it.
    Untouched(Body),
    Rest(Body),
    /// The rest cannot be read.
    Broken,
}

/// The body as its reader has it; it gives the rest back when it is dropped.
struct Lent {
    left: Left,
    back: Arc<Mutex<Left>>,
}

impl Unread {
    /// `request`, whose body may have `limit` bytes, and what keeps sight of its body.
    pub fn of(request: Request, limit: usize) -> (Request, Unread) {
        let most = limit.saturating_mul(DRAIN_FACTOR);
        let too_long = declared_length(request.headers()).is_some_and(|length| length > most);
        let waits = request.headers().contains_key(EXPECT);
        let left = Arc::new(Mutex::new(Left::Nothing));
        let back = Arc::clone(&left);
        let request = request.map(|body| Body::new(Lent { left: Left::Untouched(body), back }));
        (request, Unread { left, waits, too_long, most })
    }

    /// Reads what is left until `deadline`, once nobody else reads. False if the connection cannot
    /// go on.
    pub async fn drain(self, state: &State, deadline: Instant) -> bool {
        let left = mem::replace(
            &mut *self.left.lock().unwrap_or_else(PoisonError::into_inner),
            Left::Nothing,
        );
        let (body, deadline) = match left {
            Left::Nothing => return true,
            Left::Broken => return false,
            Left::Untouched(_) if self.waits => return false,
            Left::Untouched(_) | Left::Rest(_) if self.too_long => return false,
            Left::Untouched(body) => (body, deadline.min(Instant::now() + UNTOUCHED)),
            Left::Rest(body) => (body, deadline),
        };
        let mut cuts = state.cuts();
        tokio::select! {
            ends = timeout_at(deadline, ends_within(body, self.most)) => ends == Ok(true),
            _ = cuts.wait_for(|cut| *cut) => false,
        }
    }
}

/// Returns true when `body` ends within `most` bytes, without a long pause.
async fn ends_within(mut body: Body, most: usize) -> bool {
    let mut total = 0_usize;
    loop {
        match timeout(SILENCE, body.frame()).await {
            Ok(None) => return true,
            Ok(Some(Ok(frame))) => {
                total = total.saturating_add(frame.data_ref().map_or(0, Bytes::len));
            }
            Ok(Some(Err(_))) | Err(_) => return false,
        }
        if total > most {
            return false;
        }
    }
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let (Left::Untouched(mut body) | Left::Rest(mut body)) =
            mem::replace(&mut self.left, Left::Nothing)
        else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(&mut body).poll_frame(context);
        self.left = match &polled {
            Poll::Ready(None) => Left::Nothing,
            Poll::Ready(Some(Err(_))) => Left::Broken,
            Poll::Ready(Some(Ok(_))) | Poll::Pending => Left::Rest(body),
        };
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.left {
            Left::Nothing | Left::Broken => true,
            Left::Untouched(body) | Left::Rest(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.left {
            Left::Nothing | Left::Broken => SizeHint::with_exact(0),
            Left::Untouched(body) | Left::Rest(body) => body.size_hint(),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let left = match mem::replace(&mut self.left, Left::Nothing) {
            Left::Untouched(body) | Left::Rest(body) if body.is_end_stream() => Left::Nothing,
            left => left,
        };
        *self.back.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }
}
