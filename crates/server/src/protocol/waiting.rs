//! Streams that wait for a model's load: the client hears of them by comments, before there is an answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::{Request, State as Shared};
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use serde_json::json;

use super::error_body;
use crate::error::ApiError;
use crate::http::response::text_response;
use crate::run::state::State;

/// What keeps a silent stream alive.
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

/// What an early stream waits for.
enum Stage {
    Answer(Answer),
    Body(BodyDataStream),
    Ended,
}

/// Answers `request` by `next`. Where that waits for a model's load for as long as a stream may be silent, the
/// stream begins without it, and a failure becomes an event.
pub async fn kept_alive(
    Shared(state): Shared<Arc<State>>,
    mut request: Request,
    next: Next,
) -> Response {
    let every = state.config.timeouts.keep_alive;
    let path = request.uri().path().to_owned();
    let waiting = Waiting::default();
    request.extensions_mut().insert(waiting.clone());
    let mut answer: Answer = Box::pin(next.run(request));
    if let Ok(response) = tokio::time::timeout(every, &mut answer).await {
        return response;
    }
    if !waiting.0.load(Ordering::Acquire) {
        return answer.await;
    }
    // What has come so far is a first comment.
    let parts = stream::unfold((Stage::Answer(answer), Some(COMMENT)), move |(stage, first)| {
        let path = path.clone();
        async move {
            match first {
                Some(comment) => Some((comment.to_owned().into(), (stage, None))),
                None => {
                    part(stage, every, &path).await.map(|(bytes, stage)| (bytes, (stage, None)))
                }
            }
        }
    });
    let body = Body::from_stream(parts.map(Ok::<axum::body::Bytes, Infallible>));
    let mut response = text_response(StatusCode::OK, "text/event-stream", body);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// What the stream says next, and what it waits for then.
async fn part(stage: Stage, every: Duration, path: &str) -> Option<(axum::body::Bytes, Stage)> {
    match stage {
        Stage::Answer(mut answer) => match tokio::time::timeout(every, &mut answer).await {
            Err(_) => Some((COMMENT.into(), Stage::Answer(answer))),
            Ok(mut response) => match response.extensions_mut().remove::<ApiError>() {
                Some(error) => Some((failure(path, &error).into(), Stage::Ended)),
                None => {
                    let mut body = response.into_body().into_data_stream();
                    let bytes = body.next().await?.ok()?;
                    Some((bytes, Stage::Body(body)))
                }
            },
        },
        // It has comments of its own.
        Stage::Body(mut body) => {
            let bytes = body.next().await?.ok()?;
            Some((bytes, Stage::Body(body)))
        }
        Stage::Ended => None,
    }
}

/// The only event of a stream that could not begin, as the protocol of `path` has it.
fn failure(path: &str, error: &ApiError) -> String {
    let mut body = error_body(path, error);
    if path.starts_with("/v1/messages") {
        return format!("event: error\ndata: {body}\n\n");
    }
    if path.starts_with("/v1/responses") {
        let mut event = body["error"].take();
        event["type"] = json!("error");
        event["sequence_number"] = json!(0);
        return format!("event: error\ndata: {event}\n\n");
    }
    format!("data: {body}\n\n")
}
