//! `GET /slots` and `POST /slots/{id}`: the requests that are computed at once.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde_json::{Value as Json, json};

use crate::error::{ApiError, Result};
use crate::http::query;
use crate::http::response::json_response;
use crate::pool::loaded::Any;
use crate::run::state::State;

/// Tells how many slots compute.
///
/// # Errors
/// The server ends; each slot computes, and the request asks that one does not.
pub async fn list(Shared(state): Shared<Arc<State>>, uri: Uri) -> Result<Response> {
    state.pool.check_open()?;
    let (running, count) = (state.pool.status().running, state.config.slots);
    let asks_for_one = query::pairs(uri.query())?.iter().any(|(name, _)| name == "fail_on_no_slot");
    if asks_for_one && running >= count {
        return Err(ApiError::no_slot());
    }
    let models = state.pool.reports().into_iter().filter_map(|report| report.model);
    let context = models.filter_map(|model| match model {
        Any::Text(loaded) => Some(loaded.model.info().context_length),
        _ => None,
    });
    // Of several models, any slot may have each.
    let context = context.max();
    let slot = |id: usize| json!({"id": id, "n_ctx": context, "is_processing": id < running, "speculative": false});
    let slots: Vec<Json> = (0..count).map(slot).collect();
    Ok(json_response(StatusCode::OK, &json!(slots)))
}

/// Refuses to save, restore or erase what a slot holds.
///
/// # Errors
/// Always.
pub async fn change() -> Result<Response> {
    let reason = "slots hold nothing between requests: prompts are found again by their tokens, \
                  whichever slot computes them, and --prefix-cache-dir keeps them on a disk";
    Err(ApiError::not_there(reason))
}
