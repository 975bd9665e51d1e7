//! The header that tells of fields which were taken and change nothing.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::header::USER_AGENT;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use super::access_log::Peer;
use crate::fields::told::telling;
use crate::run::state::State;

/// The header: names of fields with a comma between them.
pub const IGNORED: HeaderName = HeaderName::from_static("x-ml-ignored");

/// Answers `request` by `next`, and tells in a header which of its fields were ignored.
pub async fn telling_ignored(
    Shared(state): Shared<Arc<State>>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    let agent = request.headers().get(USER_AGENT).cloned();
    let (mut response, names) = telling(state.config.strict_fields, next.run(request)).await;
    if names.is_empty() {
        return response;
    }
    let fields = names.join(", ");
    let agent = agent.as_ref().and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    let agent = &agent[..agent.floor_char_boundary(100)];
    if state.ignored.is_new((peer, agent), &fields) {
        tracing::info!(
            target: "access",
            peer = peer.map(tracing::field::display),
            agent,
            ignored = fields,
            "fields that change no answer here were ignored; told once for each client"
        );
    }
    if let Ok(value) = HeaderValue::from_str(&fields) {
        response.headers_mut().insert(IGNORED, value);
    }
    response
}
