//! `POST /v1/models/load` and `/v1/models/unload`, and models as llama.cpp's server lists them.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value as Json, json};

use super::tables;
use crate::error::{ApiError, Result};
use crate::fields::table::check;
use crate::http::body;
use crate::http::response::json_response;
use crate::pool::models::Makes;
use crate::pool::report::Report;
use crate::pool::slot::Keep;
use crate::run::state::State;

/// Loads a model.
///
/// # Errors
/// There is no such model, or it cannot be loaded.
pub async fn load(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let (name, _) = named(&state, request).await?;
    let index = state.pool.load_named(&name).await?;
    state.pool.stay(index);
    Ok(json_response(StatusCode::OK, &json!({"success": true})))
}

/// Unloads a model as soon as nobody uses it.
///
/// # Errors
/// There is no such model, or it stays loaded.
pub async fn unload(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let (name, report) = named(&state, request).await?;
    if report.known.pinned {
        let reason = "stays loaded: it is pinned, or the only one";
        return Err(ApiError::value("model", reason));
    }
    if matches!(report.state, "loaded" | "loading") {
        let index = state.pool.find(Some(&name), report.known.makes).await?;
        state.pool.keep(index, Keep::For(Duration::ZERO));
    }
    Ok(json_response(StatusCode::OK, &json!({"success": true})))
}

async fn named(state: &State, request: Request) -> Result<(String, Report)> {
    state.pool.check_open()?;
    let (object, _) = body::object(state, request).await?;
    let mut reader = check(&[tables::LOAD], &state.config.limits, object)?;
    let name = reader.text("model")?.unwrap_or_default();
    reader.finish()?;
    let report = state.pool.get(&name).await?;
    Ok((name, report))
}

/// The fields of a model that are llama.cpp's: its other names, and where it is in its life.
pub fn fields(report: &Report, aliases: &[String]) -> Json {
    let status = match report.state {
        "unloading" => "unloaded",
        state => state,
    };
    let mut status = json!({"value": status});
    if report.state == "failed" {
        status = json!({"value": "unloaded", "failed": true});
    }
    json!({"aliases": aliases, "tags": [], "status": status})
}

/// The entry of a model in the list of which llama.cpp's clients read capabilities, where `model`
/// is what it tells of itself.
pub fn listed(report: &Report, model: &Json) -> Json {
    let takes = |kind: &str| {
        let kinds = model["input_modalities"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|one| one == kind))
    };
    let capabilities: &[&str] = match report.known.makes {
        Makes::Text if takes("image") || takes("audio") => &["completion", "multimodal"],
        Makes::Text => &["completion"],
        Makes::Vectors => &["embedding"],
        Makes::Scores => &["rerank"],
        Makes::Pictures | Makes::Transcripts | Makes::Speech => &[],
    };
    let name = &model["id"];
    json!({"name": name, "model": name, "type": "model", "capabilities": capabilities})
}
