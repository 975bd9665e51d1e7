//! `GET /health` and `GET /metrics`.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::Response;
use inference_core::EngineStatus;
use serde_json::json;

use crate::http::response::{json_response, text_response};
use crate::run::metrics;
use crate::run::state::{Phase, State};

/// Whether the server answers requests: 200 with `ok`, else 503 with `loading`, `draining` or
/// `stalled`. It is the engine's own last step that tells, so an engine that hangs is not `ok`.
pub async fn health(Shared(state): Shared<Arc<State>>) -> Response {
    let phase = state.phase();
    let engine = status(&phase);
    let stalled = engine.heartbeat_age >= state.config.timeouts.stall;
    let (code, name) = match phase {
        Phase::Loading => (StatusCode::SERVICE_UNAVAILABLE, "loading"),
        Phase::Draining(_) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        Phase::Ready(_) if stalled => (StatusCode::SERVICE_UNAVAILABLE, "stalled"),
        Phase::Ready(_) => (StatusCode::OK, "ok"),
    };
    let (held, waiting) = state.admission.held();
    let object = json!({
        "status": name,
        "model": state.config.model,
        "held": held,
        "running": engine.running,
        "waiting": engine.waiting.max(waiting),
        "held_bytes": engine.held_bytes,
        "heartbeat_age_seconds": engine.heartbeat_age.as_secs_f64(),
    });
    json_response(code, &object)
}

/// What is counted, for Prometheus.
pub async fn metrics(Shared(state): Shared<Arc<State>>) -> Response {
    let (_, waiting) = state.admission.held();
    let text = state.metrics.render(&status(&state.phase()), waiting);
    text_response(StatusCode::OK, metrics::MEDIA_TYPE, text)
}

fn status(phase: &Phase) -> EngineStatus {
    match phase {
        Phase::Ready(loaded) | Phase::Draining(Some(loaded)) => loaded.model.status(),
        Phase::Loading | Phase::Draining(None) => EngineStatus::default(),
    }
}
