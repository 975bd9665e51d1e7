//! Streams that wait for a model's load: the client hears of them by comments, before there is an
//! answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::{StreamExt, stream};

use super::error_event;
use super::openai::head::IDLE;
use super::respond::{as_it_comes, events};
use crate::error::ApiError;
use crate::http::response::text_response;
use crate::run::state::State;
use crate::run::tally::Tally;

/// The comment that keeps a silent stream alive.
const COMMENT: &str = ": waiting\n\n";

/// Tells that a request wants events and waits for its model.
#[derive(Clone, Debug, Default)]
pub struct Waiting(Arc<AtomicBool>);

impl Waiting {
    /// From now on it does, or does not.
    pub fn set(&self, waits: bool) {
        self.0.store(waits, Ordering::Release);
    }
}

type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// The future or body that an early stream waits for.
enum Stage {
    Answer(Answer),
    Body(BodyDataStream),
}

/// Answers `request` by `next`. Where that waits for a model's load for as long as a stream may be
/// silent, the stream begins without it, and a failure becomes an event.
pub async fn kept_alive(
    Shared(state): Shared<Arc<State>>,
    mut request: Request,
    next: Next,
) -> Response {
    let every = state.config.timeouts.keep_alive;
    let path = request.uri().path().to_owned();
    let waiting = Waiting::default();
    request.extensions_mut().insert(waiting.clone());
    let mut answer: Answer = Box::pin(Tally::current().scope(next.run(request)));
    if let Ok(response) = tokio::time::timeout(every, &mut answer).await {
        return response;
    }
    if !waiting.0.load(Ordering::Acquire) {
        return answer.await;
    }
    let tally = Tally::current();
    // What has come so far is a first comment.
    let parts = stream::unfold((Stage::Answer(answer), Some(COMMENT)), move |(stage, first)| {
        let (path, tally) = (path.clone(), tally.clone());
        async move {
            match first {
                Some(comment) => Some((comment.to_owned().into(), (stage, None))),
                None => part(stage, every, (&path, &tally))
                    .await
                    .map(|(bytes, stage)| (bytes, (stage, None))),
            }
        }
    });
    let body = Body::from_stream(parts.map(Ok::<Bytes, Infallible>));
    as_it_comes(text_response(StatusCode::OK, "text/event-stream", body))
}

/// The stream's next bytes, and the stage that follows.
async fn part(
    stage: Stage,
    every: Duration,
    (path, tally): (&str, &Tally),
) -> Option<(Bytes, Stage)> {
    // The body has comments of its own.
    let mut body = match stage {
        Stage::Body(body) => body,
        Stage::Answer(mut answer) => match tokio::time::timeout(every, &mut answer).await {
            Err(_) => return Some((COMMENT.into(), Stage::Answer(answer))),
            Ok(mut response) => {
                let error = response.extensions_mut().remove::<ApiError>();
                let only = |error| {
                    tally.failed(&error);
                    events(stream::iter([error_event(path, &error)]), IDLE, every)
                };
                error.map_or(response, only).into_body().into_data_stream()
            }
        },
    };
    let bytes = body.next().await?.ok()?;
    Some((bytes, Stage::Body(body)))
}
