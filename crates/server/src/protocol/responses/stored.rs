//! `/v1/responses/{id}` and what is below it: responses that were kept.

use std::sync::Arc;

use axum::Extension;
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use super::store::{Item, Store, Stored};
use crate::error::{ApiError, Result};
use crate::http::path::Name;
use crate::http::query;
use crate::http::response::json_response;

/// The most items of a page, and how many there are unless a request says so.
const PAGE: (usize, usize) = (100, 20);

/// The beginning of responses' ids.
pub const PREFIX: &str = "resp_";

/// Tells whether `text` can be the id of a response.
pub fn is_id(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// `GET /v1/responses/{id}`.
///
/// # Errors
/// 404 where it is not kept; 400 for what it cannot be asked for.
pub async fn one(
    Extension(store): Extension<Arc<Store>>,
    Name(id): Name,
    RawQuery(query): RawQuery,
) -> Result<Response> {
    for (name, value) in query::pairs(query.as_deref())? {
        match (name.as_str(), value.as_str()) {
            ("stream" | "include_obfuscation", "false") => {}
            ("stream" | "include_obfuscation" | "starting_after" | "include" | "include[]", _) => {
                let reason = "a stored response is told as it was made, and whole";
                return Err(ApiError::unsupported(name, reason));
            }
            _ => return Err(ApiError::unknown_field(name)),
        }
    }
    let stored = find(&store, &id)?;
    Ok(json_response(StatusCode::OK, &stored.response.json))
}

/// `DELETE /v1/responses/{id}`.
///
/// # Errors
/// 404 where it is not kept.
pub async fn delete(Extension(store): Extension<Arc<Store>>, Name(id): Name) -> Result<Response> {
    match store.remove(&id) {
        true => {
            let gone = json!({"id": id, "object": "response", "deleted": true});
            Ok(json_response(StatusCode::OK, &gone))
        }
        false => Err(ApiError::not_stored(&id)),
    }
}

/// `POST /v1/responses/{id}/cancel`.
///
/// # Errors
/// Always: 404 where it is not kept, else 400, since what is kept has ended.
pub async fn cancel(Extension(store): Extension<Arc<Store>>, Name(id): Name) -> Result<Response> {
    find(&store, &id)?;
    let message = "the response has ended; one that is under way is cancelled by closing its \
                   connection";
    Err(ApiError::bad_request(message))
}

/// `GET /v1/responses/{id}/input_items`.
///
/// # Errors
/// 404 where it is not kept; 400 for a page that cannot be.
pub async fn input_items(
    Extension(store): Extension<Arc<Store>>,
    Name(id): Name,
    RawQuery(query): RawQuery,
) -> Result<Response> {
    let stored = find(&store, &id)?;
    let (mut most, mut newest_first, mut after) = (PAGE.1, true, None);
    for (name, value) in query::pairs(query.as_deref())? {
        match name.as_str() {
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=PAGE.0).contains(limit));
                most = limit.ok_or_else(|| {
                    let reason = format!("expected a whole number from 1 to {}", PAGE.0);
                    ApiError::value("limit", reason)
                })?;
            }
            "order" => {
                newest_first = match value.as_str() {
                    "asc" => false,
                    "desc" => true,
                    _ => return Err(ApiError::value("order", "expected `asc` or `desc`")),
                }
            }
            "after" => after = Some(value),
            "include" | "include[]" => {
                let reason = "items are told as they were given";
                return Err(ApiError::unsupported("include", reason));
            }
            _ => return Err(ApiError::unknown_field(name)),
        }
    }
    let mut items = stored.input;
    if newest_first {
        items.reverse();
    }
    let from = match after {
        None => 0,
        Some(after) => {
            let at = items.iter().position(|item| item.id() == Some(&after));
            let reason = format!("the response has no item `{after}`");
            at.ok_or_else(|| ApiError::value("after", reason))? + 1
        }
    };
    let id = |item: &Arc<Item>| item.id().map(str::to_owned);
    let rest = items.len() - from;
    let page = &items[from..from + most.min(rest)];
    let list = json!({
        "object": "list",
        "data": page.iter().map(|item| &item.json).collect::<Vec<_>>(),
        "first_id": page.first().and_then(id),
        "last_id": page.last().and_then(id),
        "has_more": rest > most,
    });
    Ok(json_response(StatusCode::OK, &list))
}

fn find(store: &Store, id: &str) -> Result<Stored> {
    store.get(id).ok_or_else(|| ApiError::not_stored(id))
}
