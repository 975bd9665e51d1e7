//! `POST /shutdown`: the end of the server.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use crate::error::{ApiError, Result};
use crate::fields::table::check;
use crate::http::body;
use crate::http::response::json_response;
use crate::run::state::State;

/// Ends the server as a signal does: nothing new is taken, and what runs has its time to end.
///
/// # Errors
/// 403 where the server was not started so that a request may end it.
pub async fn shut_down(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let (body, _) = body::object(&state, request).await?;
    check(&[], &state.config.limits, body)?.finish()?;
    if !state.config.allows_shutdown {
        return Err(ApiError::no_shutdown());
    }
    let (running, _) = state.pool.held();
    state.end();
    let seconds = state.config.timeouts.drain.as_secs();
    let told = json!({"status": "draining", "running": running, "drain_seconds": seconds});
    Ok(json_response(StatusCode::OK, &told))
}
