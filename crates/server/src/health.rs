//! `GET /health` and `GET /metrics`.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value as Json, json};

use crate::http::response::{json_response, text_response};
use crate::pool::keeper::Phase;
use crate::pool::loaded::Any;
use crate::pool::models::Makes;
use crate::pool::report::Report;
use crate::run::metrics;
use crate::run::state::State;

/// Reports health: 200 with `ok`, else 503 with `loading`, `draining`, `stalled` or `unhealthy`.
///
/// A model that cannot be used any more is `unhealthy`, with the `reason`. The engines' own last
/// steps decide, so an engine that hangs is not `ok`.
pub async fn health(Shared(state): Shared<Arc<State>>) -> Response {
    let reports = state.pool.reports();
    let engine = state.pool.status();
    let stalled = engine.heartbeat_age >= state.config.timeouts.stall;
    let fault = |report: &Report| report.model.as_ref().and_then(Any::fault);
    let fault = reports.iter().find_map(fault).map(|error| error.to_string());
    let (code, name) = match state.pool.phase() {
        Phase::Loading => (StatusCode::SERVICE_UNAVAILABLE, "loading"),
        Phase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        Phase::Ready if fault.is_some() => (StatusCode::SERVICE_UNAVAILABLE, "unhealthy"),
        Phase::Ready if stalled => (StatusCode::SERVICE_UNAVAILABLE, "stalled"),
        Phase::Ready => (StatusCode::OK, "ok"),
    };
    let (held, waiting) = state.pool.held();
    let mut object = json!({
        "status": name,
        "held": held,
        "running": engine.running,
        "waiting": engine.waiting.max(waiting),
        "held_bytes": engine.held_bytes,
        "heartbeat_age_seconds": engine.heartbeat_age.as_secs_f64(),
        "models": reports.iter().map(|report| {
            let (model, status) = (&report.known, report.status());
            let (held, waiting) = model.admission.held();
            let mut told = json!({
                "state": report.state,
                "held": held,
                "running": status.running,
                "waiting": status.waiting.max(waiting),
                "waiting_for_load": report.waiting,
                "heartbeat_age_seconds": status.heartbeat_age.as_secs_f64(),
            });
            if let Some(load) = report.load() {
                told["load"] = load;
            }
            (model.name.to_string(), told)
        }).collect::<Map<String, Json>>(),
    });
    if let Some(reason) = fault {
        object["reason"] = json!(reason);
    }
    let mut texts = reports.iter().filter(|report| report.known.makes == Makes::Text);
    if let (Some(only), None) = (texts.next(), texts.next()) {
        object["model"] = json!(&*only.known.name);
    }
    json_response(code, &object)
}

/// Writes the metrics in Prometheus' text format.
pub async fn metrics(Shared(state): Shared<Arc<State>>) -> Response {
    let text = state.metrics.render(&state.pool);
    text_response(StatusCode::OK, metrics::MEDIA_TYPE, text)
}
