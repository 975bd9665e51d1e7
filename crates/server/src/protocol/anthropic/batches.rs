//! `/v1/messages/batches`: requests for messages that are answered while nothing else waits.

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, Request, State as Shared};
use axum::http::header::HOST;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::{Value as Json, json};

use super::tables;
use crate::batches::record::{Batch, Form, Status, Stop};
use crate::batches::store::{Refused, Store};
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::fields::table::check;
use crate::http::body;
use crate::http::path::Name;
use crate::http::query;
use crate::http::response::json_response;
use crate::protocol::batches::DAY;
use crate::protocol::batches::refused::{error_of, store, stored};
use crate::protocol::batches::told::{limit, of_file};
use crate::protocol::ollama::time::rfc3339;
use crate::run::state::{State, now};

/// The most batches of a page, and how many there are unless a request says so.
const PAGE: (usize, usize) = (1000, 20);

/// The most bytes of a batch: it is read as one value.
const LARGEST: u64 = 64 << 20;

/// The path of each request.
const ENDPOINT: &str = "/v1/messages";

/// `POST /v1/messages/batches`.
///
/// # Errors
/// A request of it that cannot be; no room.
pub async fn create(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response> {
    let store = store(&state)?;
    let _one_of_few = store.uploads.acquire().await;
    let largest = store.bounds().file_bytes.min(LARGEST) as usize;
    let largest = largest.max(state.config.limits.body_bytes);
    let (object, _) = body::large_object(&state, request, largest).await?;
    let mut reader = check(&[tables::BATCHES], &state.config.limits, object)?;
    let requests = reader.list("requests")?.unwrap_or_default();
    // A label.
    reader.take("user_profile_id");
    reader.finish()?;
    let most = store.bounds().requests;
    if requests.is_empty() || requests.len() > most {
        let reason = format!("has 1 to {most} requests (--max-batch-requests)");
        return Err(ApiError::value("requests", reason));
    }
    let (total, lines) = lines(requests, state.config.limits.body_bytes)?;
    let created = now();
    let batch = Batch {
        id: state.id("msgbatch_"),
        window: "24h".to_owned(),
        status: Status::InProgress,
        started: Some(created),
        total,
        ..Batch::new(Form::Whole, ENDPOINT, created, created + DAY)
    };
    let id = batch.id.clone();
    let batch = stored(&store, &id, move |store| {
        store.reserve(lines.len() as u64)?;
        let path = store.part(&batch.id, "input");
        let written = std::fs::File::create(&path).and_then(|mut file| {
            file.write_all(lines.as_bytes())?;
            file.sync_all()
        });
        let added = written.map_err(Refused::from).and_then(|()| store.add(batch));
        if added.is_err() {
            store.release(lines.len() as u64);
            let _ = std::fs::remove_file(path);
        }
        added
    })
    .await?;
    Ok(json_response(StatusCode::OK, &object_of(&state, &batch, &headers)))
}

/// How many `requests` there are, and their lines.
fn lines(requests: Vec<Json>, longest: usize) -> Result<(usize, String)> {
    let (total, mut seen, mut text) = (requests.len(), HashSet::new(), String::new());
    for (at, request) in requests.into_iter().enumerate() {
        let mut request = Reader::new(format!("requests[{at}]"), request)?;
        let place = |name: &str| format!("requests[{at}].{name}");
        let id = request.text("custom_id")?;
        let id = request.need("custom_id", id)?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if id.is_empty() || id.len() > 64 || !id.bytes().all(plain) {
            let reason = "has 1 to 64 letters, digits, `_` and `-`";
            return Err(ApiError::value(place("custom_id"), reason));
        }
        let params = request.object("params")?;
        let params = request.need("params", params)?;
        request.finish()?;
        if params.get("stream").is_some_and(|stream| *stream != false && !stream.is_null()) {
            let reason = "messages of a batch are told when they are whole";
            return Err(ApiError::unsupported(place("params.stream"), reason));
        }
        let line = json!({"custom_id": id, "method": "POST", "url": ENDPOINT, "body": params});
        let line = line.to_string();
        if line.len() >= longest {
            let reason = format!("has more than {longest} bytes (--max-body)");
            return Err(ApiError::value(place("params"), reason));
        }
        if !seen.insert(id) {
            return Err(ApiError::value(place("custom_id"), "is there twice"));
        }
        text.push_str(&line);
        text.push('\n');
    }
    Ok((total, text))
}

/// `GET /v1/messages/batches`.
///
/// # Errors
/// A page that cannot be.
pub async fn list(
    Shared(state): Shared<Arc<State>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response> {
    let mut batches = store(&state)?.batches(Form::Whole);
    batches.reverse();
    let (mut most, mut after, mut before) = (PAGE.1, None, None);
    for (name, value) in query::pairs(query.as_deref())? {
        match name.as_str() {
            "limit" => most = limit(&value, PAGE.0)?,
            "after_id" => after = Some(value),
            "before_id" => before = Some(value),
            _ => return Err(ApiError::unknown_field(name)),
        }
    }
    let at = |id: &str, field: &str| {
        let at = batches.iter().position(|batch| batch.id == id);
        at.ok_or_else(|| ApiError::value(field, format!("there is no `{id}`")))
    };
    let (from, to) = match (after, before) {
        (Some(_), Some(_)) => {
            return Err(ApiError::value("before_id", "give it or `after_id`, not both"));
        }
        (Some(after), None) => (at(&after, "after_id")? + 1, batches.len()),
        (None, Some(before)) => {
            let to = at(&before, "before_id")?;
            (to.saturating_sub(most), to)
        }
        (None, None) => (0, batches.len()),
    };
    let shown = &batches[from..to.min(from + most)];
    let has_more = if to < batches.len() { from > 0 } else { to - from > most };
    let list = json!({
        "data": shown.iter().map(|batch| object_of(&state, batch, &headers)).collect::<Vec<_>>(),
        "has_more": has_more,
        "first_id": shown.first().map(|batch| &batch.id),
        "last_id": shown.last().map(|batch| &batch.id),
    });
    Ok(json_response(StatusCode::OK, &list))
}

/// `GET /v1/messages/batches/{id}`.
///
/// # Errors
/// There is none.
pub async fn one(
    Shared(state): Shared<Arc<State>>,
    Name(id): Name,
    headers: HeaderMap,
) -> Result<Response> {
    let store = store(&state)?;
    let batch = find(&store, &id)?;
    Ok(json_response(StatusCode::OK, &object_of(&state, &batch, &headers)))
}

/// `POST /v1/messages/batches/{id}/cancel`. One that is over stays as it is.
///
/// # Errors
/// There is none.
pub async fn cancel(
    Shared(state): Shared<Arc<State>>,
    Name(id): Name,
    headers: HeaderMap,
) -> Result<Response> {
    let store = store(&state)?;
    find(&store, &id)?;
    let of = id.clone();
    let batch = stored(&store, &id, move |store| store.cancel(&of, now())).await?;
    Ok(json_response(StatusCode::OK, &object_of(&state, &batch, &headers)))
}

/// `DELETE /v1/messages/batches/{id}`.
///
/// # Errors
/// There is none, or it is not over.
pub async fn delete(Shared(state): Shared<Arc<State>>, Name(id): Name) -> Result<Response> {
    let store = store(&state)?;
    find(&store, &id)?;
    let of = id.clone();
    stored(&store, &id, move |store| store.remove(&of)).await?;
    Ok(json_response(StatusCode::OK, &json!({"id": id, "type": "message_batch_deleted"})))
}

/// `GET /v1/messages/batches/{id}/results`.
///
/// # Errors
/// There is none, or it is not over.
pub async fn results(Shared(state): Shared<Arc<State>>, Name(id): Name) -> Result<Response> {
    let store = store(&state)?;
    let batch = find(&store, &id)?;
    if !batch.status.is_over() {
        return Err(ApiError::bad_request(format!("the batch `{id}` has no results yet")));
    }
    let path = store.part(&batch.id, "output");
    let failed = |error: std::io::Error| error_of(&store, &id, error.into());
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let bytes = file.metadata().await.map_err(failed)?.len();
    Ok(of_file(file, bytes, "application/x-jsonl"))
}

fn find(store: &Store, id: &str) -> Result<Batch> {
    let batch = store.batch(id).filter(|batch| batch.form == Form::Whole);
    batch.ok_or_else(|| ApiError::not_stored(id))
}

fn object_of(state: &State, batch: &Batch, headers: &HeaderMap) -> Json {
    let time = |seconds: u64| rfc3339(Duration::from_secs(seconds));
    let is_over = batch.status.is_over();
    let status = match batch.status {
        _ if is_over => "ended",
        Status::Cancelling => "canceling",
        Status::Finalizing if batch.cancelling.is_some() => "canceling",
        _ => "in_progress",
    };
    let rest = batch.total.saturating_sub(batch.completed + batch.failed);
    let left = |stop: Stop| if is_over && batch.stop == Some(stop) { rest } else { 0 };
    // They are told once all is over, as are those that failed for want of room.
    let told = |count: usize| if is_over { count } else { 0 };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let scheme = if state.config.tls.is_some() { "https" } else { "http" };
    let results = format!("{scheme}://{host}{ENDPOINT}/batches/{}/results", batch.id);
    json!({
        "id": batch.id,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": {
            "processing": if is_over { 0 } else { batch.total },
            "succeeded": told(batch.completed),
            "errored": told(batch.failed) + left(Stop::Full),
            "canceled": left(Stop::Cancelled),
            "expired": left(Stop::Expired),
        },
        "created_at": time(batch.created),
        "expires_at": time(batch.expires),
        "ended_at": batch.ended.map(time),
        "cancel_initiated_at": batch.cancelling.map(time),
        "archived_at": null,
        "results_url": is_over.then_some(results),
    })
}
