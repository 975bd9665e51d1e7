//! What no handler has read of a request's body. A connection goes on only behind it; and a client that
//! writes its whole request before it reads shall get to see why it was refused.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::Error;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, EXPECT};
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, timeout_at};

/// So many times what a body may have is read and dropped.
const DRAIN_FACTOR: usize = 8;

/// The bytes that a request declares its body to have.
pub fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The body of a request that another one reads, and that comes back where it does not read all of it.
pub struct Unread {
    body: Arc<Mutex<Option<Body>>>,
    /// Whether the rest may be more than is worth reading, or the client sends it only when told to.
    ends: bool,
    most: usize,
}

/// The body as its reader has it.
struct Lent {
    body: Option<Body>,
    back: Arc<Mutex<Option<Body>>>,
}

impl Unread {
    /// `request`, whose body may have `limit` bytes, and what keeps sight of its body.
    pub fn of(request: Request, limit: usize) -> (Request, Unread) {
        let most = limit.saturating_mul(DRAIN_FACTOR);
        let too_long = declared_length(request.headers()).is_some_and(|length| length > most);
        let ends = too_long || request.headers().contains_key(EXPECT);
        let body = Arc::new(Mutex::new(None));
        let back = Arc::clone(&body);
        let request = request.map(|body| Body::new(Lent { body: Some(body), back }));
        (request, Unread { body, ends, most })
    }

    /// Reads what is left until `deadline`, once nobody else reads. False if the connection cannot go on.
    pub async fn drain(self, deadline: Instant) -> bool {
        let Some(body) = self.body.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return true;
        };
        !self.ends && timeout_at(deadline, ends_within(body, self.most)).await == Ok(true)
    }
}

/// Whether `body` ends after no more than `most` bytes.
async fn ends_within(mut body: Body, most: usize) -> bool {
    let mut total = 0_usize;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        total = total.saturating_add(frame.data_ref().map_or(0, Bytes::len));
        if total > most {
            return false;
        }
    }
    true
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        Pin::new(body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let body = self.body.take().filter(|body| !body.is_end_stream());
        *self.back.lock().unwrap_or_else(PoisonError::into_inner) = body;
    }
}
