//! `GET /v1beta/models` and `GET /v1beta/models/{model}`.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde_json::{Value as Json, json};

use super::action::Action;
use crate::error::{ApiError, Result};
use crate::http::path::Name;
use crate::http::query;
use crate::http::response::json_response;
use crate::pool::loaded::Any;
use crate::pool::models::{Described, Makes};
use crate::pool::report::Report;
use crate::run::state::State;

/// The models of a page, unless the query says.
const PAGE: usize = 1000;

/// The models, or the page of them that the query asks for.
///
/// # Errors
/// 503 while the server ends, and before it is ready where no request waits for that; 400 for a
/// page that there is not.
pub async fn list(Shared(state): Shared<Arc<State>>, uri: Uri) -> Result<Response> {
    state.pool.check_open()?;
    state.pool.refresh().await;
    let reports = state.pool.reports();
    let pairs = query::pairs(uri.query())?;
    let query = |name: &str| {
        let found = pairs.iter().find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    };
    let size = query("pageSize").map(|size| {
        let size = size.parse().ok().filter(|size| (1..=PAGE).contains(size));
        let reason = format!("expected a whole number from 1 to {PAGE}");
        size.ok_or_else(|| ApiError::value("pageSize", reason))
    });
    let size = size.transpose()?.unwrap_or(PAGE);
    // A page is known by the model before it.
    let first = query("pageToken").map(|token| {
        let before = reports.iter().position(|report| *report.known.name == *token);
        let reason = format!("there is no model `{token}`");
        before.map(|at| at + 1).ok_or_else(|| ApiError::value("pageToken", reason))
    });
    let first = first.transpose()?.unwrap_or(0);
    let page: Vec<_> = reports.iter().skip(first).take(size).collect();
    let mut told = json!({"models": page.iter().map(|one| object(one)).collect::<Vec<_>>()});
    if let Some(last) = page.last().filter(|_| first + page.len() < reports.len()) {
        told["nextPageToken"] = json!(&*last.known.name);
    }
    Ok(json_response(StatusCode::OK, &told))
}

/// One model.
///
/// # Errors
/// 404 for a name that no model has, 405 for what a model is to do, and as [`list`].
pub async fn one(
    Shared(state): Shared<Arc<State>>,
    Name(name): Name,
    uri: Uri,
) -> Result<Response> {
    if Action::of(&name).is_some() {
        return Err(ApiError::method("GET", uri.path(), "POST"));
    }
    let report = state.pool.get(&name).await?;
    state.pool.check_open()?;
    Ok(json_response(StatusCode::OK, &object(&report)))
}

fn object(report: &Report) -> Json {
    let known = &report.known;
    let info = match (&report.model, &known.described) {
        (Some(Any::Text(loaded)), _) => Some(loaded.model.info()),
        (None, Some(Described::Text(info, _))) => Some(&**info),
        _ => None,
    };
    let does: &[&str] = match known.makes {
        Makes::Text => &["generateContent", "streamGenerateContent", "countTokens"],
        _ => &[],
    };
    let mut object = json!({
        "name": format!("models/{}", known.name),
        "baseModelId": &*known.name,
        "version": "1",
        "displayName": &*known.name,
        "description": "",
        "supportedGenerationMethods": does,
    });
    if let Some(info) = info {
        object["inputTokenLimit"] = json!(info.context_length);
        object["outputTokenLimit"] = json!(info.context_length);
    }
    object
}
