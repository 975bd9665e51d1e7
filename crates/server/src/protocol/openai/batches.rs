//! `/v1/batches`: requests that are answered while nothing else waits.

use std::sync::Arc;

use axum::extract::{RawQuery, Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value as Json, json};

use super::batch_tables::BATCHES;
use crate::batches::record::{Batch, Fault, Form, Status};
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::fields::table::check;
use crate::http::body;
use crate::http::path::Name;
use crate::http::query;
use crate::http::response::json_response;
use crate::protocol::batches::refused::{store, stored};
use crate::protocol::batches::told::{limit, page};
use crate::protocol::batches::{DAY, STAYS};
use crate::run::state::{State, now};

/// The most batches of a page, and how many there are unless a request says so.
const PAGE: (usize, usize) = (100, 20);

/// The most labels of a batch, and characters of their names and texts.
const LABELS: (usize, usize, usize) = (16, 64, 512);

/// The most days of a batch.
const DAYS: u64 = 30;

/// `POST /v1/batches`.
///
/// # Errors
/// A field that cannot be; no such file.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let store = store(&state)?;
    let (object, _) = body::object(&state, request).await?;
    let mut reader = check(&[BATCHES], &state.config.limits, object)?;
    let input = reader.text("input_file_id")?;
    let input = reader.need("input_file_id", input)?;
    let endpoint = reader.text("endpoint")?;
    let endpoint = reader.need("endpoint", endpoint)?;
    let window = reader.text("completion_window")?;
    let window = reader.need("completion_window", window)?;
    let metadata = reader.object("metadata")?;
    let output_stays = output_stays(&mut reader)?;
    reader.finish()?;
    let (most, longest_name, longest) = LABELS;
    for (at, (name, text)) in metadata.iter().flatten().enumerate() {
        let length = text.as_str().map_or(0, |text| text.chars().count());
        if at == most || name.chars().count() > longest_name || length > longest {
            let reason = format!(
                "has at most {most} labels, their names {longest_name} characters and their texts {longest}"
            );
            return Err(ApiError::value("metadata", reason));
        }
    }
    let created = now();
    let expires = created + seconds(&window)?;
    if store.file(&input, created).is_none() {
        return Err(ApiError::not_stored(&input).about("input_file_id"));
    }
    let batch = Batch {
        id: state.id("batch_"),
        input: Some(input),
        window,
        metadata,
        output_stays,
        ..Batch::new(Form::Files, &endpoint, created, expires)
    };
    let id = batch.id.clone();
    let batch = stored(&store, &id, move |store| store.add(batch)).await?;
    Ok(json_response(StatusCode::OK, &object_of(&batch)))
}

/// How long files of answers stay, in seconds.
fn output_stays(reader: &mut Reader) -> Result<u64> {
    let Some(given) = reader.take("output_expires_after") else { return Ok(STAYS) };
    let mut given = Reader::new("output_expires_after", given)?;
    let anchor = given.text("anchor")?;
    if given.need("anchor", anchor)? != "created_at" {
        return Err(ApiError::value("output_expires_after.anchor", "expected `created_at`"));
    }
    let seconds = given.count("seconds")?;
    let seconds = given.need("seconds", seconds)? as u64;
    if !(3600..=DAYS * DAY).contains(&seconds) {
        let reason = "expected a whole number from 3600 to 2592000";
        return Err(ApiError::value("output_expires_after.seconds", reason));
    }
    given.finish()?;
    Ok(seconds)
}

/// The seconds of a time such as `24h` or `7d`.
fn seconds(window: &str) -> Result<u64> {
    let of = |end, unit| Some(window.strip_suffix(end)?.parse::<u64>().ok()?.saturating_mul(unit));
    // No time that may be has more letters: it is kept as it came.
    let is_short = window.len() <= 4 && !window.starts_with(['+', '0']);
    let seconds = if is_short { of('h', 3600).or_else(|| of('d', DAY)) } else { None };
    let seconds = seconds.filter(|seconds| (3600..=DAYS * DAY).contains(seconds));
    let reason = "expected hours or days, such as `24h` or `7d`, 30 days at most";
    seconds.ok_or_else(|| ApiError::value("completion_window", reason))
}

/// `GET /v1/batches`.
///
/// # Errors
/// A page that cannot be.
pub async fn list(
    Shared(state): Shared<Arc<State>>,
    RawQuery(query): RawQuery,
) -> Result<Response> {
    let batches = store(&state)?.batches(Form::Files);
    let (mut most, mut after) = (PAGE.1, None);
    for (name, value) in query::pairs(query.as_deref())? {
        match name.as_str() {
            "limit" => most = limit(&value, PAGE.0)?,
            "after" => after = Some(value),
            _ => return Err(ApiError::unknown_field(name)),
        }
    }
    let batches = batches.iter().rev();
    let batches = batches.map(|batch| (batch.id.clone(), object_of(batch))).collect();
    Ok(json_response(StatusCode::OK, &page(batches, after.as_deref(), most)?))
}

/// `GET /v1/batches/{id}`.
///
/// # Errors
/// There is none.
pub async fn one(Shared(state): Shared<Arc<State>>, Name(id): Name) -> Result<Response> {
    Ok(json_response(StatusCode::OK, &object_of(&find(&state, &id)?)))
}

/// `POST /v1/batches/{id}/cancel`.
///
/// # Errors
/// There is none, or it is over.
pub async fn cancel(Shared(state): Shared<Arc<State>>, Name(id): Name) -> Result<Response> {
    let batch = find(&state, &id)?;
    if batch.status.is_over() {
        let status = word(batch.status);
        return Err(ApiError::bad_request(format!("the batch `{id}` is over: it is {status}")));
    }
    let of = id.clone();
    let batch = stored(&store(&state)?, &id, move |store| store.cancel(&of, now())).await?;
    Ok(json_response(StatusCode::OK, &object_of(&batch)))
}

fn find(state: &State, id: &str) -> Result<Batch> {
    let batch = store(state)?.batch(id).filter(|batch| batch.form == Form::Files);
    batch.ok_or_else(|| ApiError::not_stored(id))
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Validating => "validating",
        Status::Failed => "failed",
        Status::InProgress => "in_progress",
        Status::Finalizing => "finalizing",
        Status::Completed => "completed",
        Status::Expired => "expired",
        Status::Cancelling => "cancelling",
        Status::Cancelled => "cancelled",
    }
}

fn object_of(batch: &Batch) -> Json {
    let ended = |status: Status| batch.ended.filter(|_| batch.status == status);
    let fault = |fault: &Fault| {
        json!({
            "code": fault.code, "message": fault.message, "line": fault.line, "param": fault.param,
        })
    };
    let errors = (!batch.faults.is_empty()).then(|| {
        let faults: Vec<_> = batch.faults.iter().map(fault).collect();
        json!({"object": "list", "data": faults})
    });
    let is_over = batch.status.is_over();
    let usage = batch.tokens.map(|tokens| {
        json!({
            "input_tokens": tokens.input,
            "input_tokens_details": {"cached_tokens": tokens.cached},
            "output_tokens": tokens.output,
            "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
            "total_tokens": tokens.input + tokens.output,
        })
    });
    json!({
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": errors,
        "input_file_id": batch.input,
        "completion_window": batch.window,
        "status": word(batch.status),
        // Those are told that are there.
        "output_file_id": batch.output.as_ref().filter(|_| is_over),
        "error_file_id": batch.errors.as_ref().filter(|_| is_over),
        "created_at": batch.created,
        "in_progress_at": batch.started,
        "expires_at": batch.expires,
        "finalizing_at": batch.finalizing,
        "completed_at": ended(Status::Completed),
        "failed_at": ended(Status::Failed),
        "expired_at": ended(Status::Expired),
        "cancelling_at": batch.cancelling,
        "cancelled_at": ended(Status::Cancelled),
        "request_counts": {
            "total": batch.total, "completed": batch.completed, "failed": batch.failed,
        },
        "usage": usage,
        "metadata": batch.metadata,
    })
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn the_time_of_a_batch_is_hours_or_days() {
        assert_eq!(seconds("24h").unwrap(), 86_400);
        assert_eq!(seconds("30d").unwrap(), 2_592_000);
        for wrong in [
            "",
            "24",
            "h",
            "0h",
            "31d",
            "-1h",
            "1.5h",
            "18446744073709551615d",
            "24 h",
            "0024h",
            "+24h",
        ] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
