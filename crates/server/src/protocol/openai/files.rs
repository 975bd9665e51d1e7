//! `/v1/files`: files with requests of batches, and with their answers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use multer::{Constraints, Field, Multipart, SizeLimit};
use serde_json::{Value as Json, json};
use tokio::time::timeout;

use crate::batches::record::{FileRecord, Purpose};
use crate::batches::store::Store;
use crate::batches::upload::Upload;
use crate::error::{ApiError, Result};
use crate::http::form;
use crate::http::path::Name;
use crate::http::query;
use crate::http::response::json_response;
use crate::protocol::batches::STAYS;
use crate::protocol::batches::refused::{error_of, store, stored};
use crate::protocol::batches::told::{limit, of_file, page};
use crate::run::state::{State, now};

/// The most files of a page, and how many there are unless a request says so.
const PAGE: (usize, usize) = (10_000, 10_000);

/// An upload has so many times as long as another body.
const LONGER: u32 = 20;

/// The most bytes of a field that is no file.
const FIELD: usize = 1024;

/// The most characters of a file's name.
const LONGEST_NAME: usize = 255;

/// Bytes of a form beside those of its file.
const FORM: u64 = 1 << 20;

/// Seconds that a file may stay.
const SECONDS: std::ops::RangeInclusive<u64> = 3600..=30 * 24 * 3600;

/// The fields of an upload.
#[derive(Default)]
struct Fields {
    purpose: Option<String>,
    anchor: Option<String>,
    seconds: Option<String>,
    file: Option<(Upload, String)>,
}

/// `POST /v1/files`: a form.
///
/// # Errors
/// No form, or one that says something else; no room.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let store = store(&state)?;
    if request.headers().contains_key("anthropic-version") {
        let reason =
            "files here are of OpenAI's protocol; a batch of messages has its requests in it";
        return Err(ApiError::bad_request(reason));
    }
    let Some(boundary) = form::boundary(request.headers()) else {
        let message = "the body must be a form, `Content-Type: multipart/form-data`";
        return Err(ApiError::media_type(message));
    };
    let pause = state.config.timeouts.body;
    // Headers of parts that never end would be held.
    let most = SizeLimit::new().whole_stream(store.bounds().file_bytes.saturating_add(FORM));
    let most = Constraints::new().size_limit(most);
    let form = request.into_body().into_data_stream();
    let form = Multipart::with_constraints(form, boundary, most);
    let limit = pause * LONGER;
    let id = state.id("file-");
    let _one_of_few = store.uploads.acquire().await;
    let read = timeout(limit, read(&store, form, &id, pause)).await;
    let Fields { purpose, anchor, seconds, file } =
        read.map_err(|_| ApiError::timeout(limit.as_secs_f64()))??;
    match purpose.as_deref() {
        None => return Err(ApiError::value("purpose", "is missing: `batch`")),
        Some("batch") => {}
        Some(other) => {
            let reason = format!("`{other}`: files are for batches, `purpose` is `batch`");
            return Err(ApiError::unsupported("purpose", reason));
        }
    }
    let Some((upload, name)) = file else { return Err(ApiError::value("file", "is missing")) };
    let created = now();
    let expires = created + stays(anchor.as_deref(), seconds.as_deref())?;
    let (number, bytes, purpose) = (0, 0, Purpose::Batch);
    let record = FileRecord { id: id.clone(), number, name, purpose, bytes, created, expires };
    let kept = upload.keep(record).await;
    let record = kept.map_err(|refused| error_of(&store, &id, refused))?;
    Ok(json_response(StatusCode::OK, &object(&record)))
}

/// The fields of `form`, whose file comes into `store`.
async fn read(
    store: &Arc<Store>,
    mut form: Multipart<'_>,
    id: &str,
    pause: Duration,
) -> Result<Fields> {
    let broken =
        |error: multer::Error| ApiError::bad_request(format!("the form is broken: {error}"));
    let late = |_| ApiError::timeout(pause.as_secs_f64());
    let mut fields = Fields::default();
    while let Some(mut field) =
        timeout(pause, form.next_field()).await.map_err(late)?.map_err(broken)?
    {
        let name = field.name().unwrap_or_default().to_owned();
        let place = match name.as_str() {
            "purpose" => &mut fields.purpose,
            "expires_after[anchor]" => &mut fields.anchor,
            "expires_after[seconds]" => &mut fields.seconds,
            "file" if fields.file.is_none() => {
                let label = label(&field);
                let begun = Upload::begin(store, id).await;
                let mut upload = begun.map_err(|error| error_of(store, id, error.into()))?;
                while let Some(chunk) =
                    timeout(pause, field.chunk()).await.map_err(late)?.map_err(broken)?
                {
                    upload.add(&chunk).await.map_err(|refused| error_of(store, id, refused))?;
                }
                fields.file = Some((upload, label));
                continue;
            }
            "file" => return Err(ApiError::value("file", "is given twice")),
            _ => return Err(ApiError::unknown_field(name)),
        };
        let mut text = Vec::new();
        while let Some(chunk) =
            timeout(pause, field.chunk()).await.map_err(late)?.map_err(broken)?
        {
            if text.len() + chunk.len() > FIELD {
                return Err(ApiError::value(name, format!("has more than {FIELD} bytes")));
            }
            text.extend_from_slice(&chunk);
        }
        let text = String::from_utf8(text);
        let text = text.map_err(|_| ApiError::value(&name, "is not text in UTF-8"))?;
        if place.replace(text).is_some() {
            return Err(ApiError::value(name, "is given twice"));
        }
    }
    Ok(fields)
}

/// The client's name for a file. It is told again, and nothing is found by it.
fn label(field: &Field<'_>) -> String {
    let name = field.file_name().unwrap_or("file");
    let shown = name.chars().filter(|c| !c.is_control()).take(LONGEST_NAME);
    shown.collect()
}

/// How long a file stays.
fn stays(anchor: Option<&str>, seconds: Option<&str>) -> Result<u64> {
    match (anchor, seconds) {
        (None, None) => Ok(STAYS),
        (Some("created_at"), Some(seconds)) => {
            let seconds = seconds.parse().ok().filter(|seconds| SECONDS.contains(seconds));
            let reason = "expected a whole number from 3600 to 2592000";
            seconds.ok_or_else(|| ApiError::value("expires_after[seconds]", reason))
        }
        (Some("created_at"), None) => Err(ApiError::value("expires_after[seconds]", "is missing")),
        _ => Err(ApiError::value("expires_after[anchor]", "expected `created_at`")),
    }
}

/// `GET /v1/files`.
///
/// # Errors
/// A page that cannot be.
pub async fn list(
    Shared(state): Shared<Arc<State>>,
    RawQuery(query): RawQuery,
) -> Result<Response> {
    let store = store(&state)?;
    let mut files = store.files(now());
    files.reverse();
    let (mut most, mut after) = (PAGE.1, None);
    for (name, value) in query::pairs(query.as_deref())? {
        match name.as_str() {
            "limit" => most = limit(&value, PAGE.0)?,
            "after" => after = Some(value),
            "order" if value == "desc" => {}
            "order" if value == "asc" => files.reverse(),
            "order" => return Err(ApiError::value("order", "expected `asc` or `desc`")),
            "purpose" => files.retain(|file| word(file.purpose) == value),
            _ => return Err(ApiError::unknown_field(name)),
        }
    }
    let files: Vec<(String, Json)> =
        files.iter().map(|file| (file.id.clone(), object(file))).collect();
    Ok(json_response(StatusCode::OK, &page(files, after.as_deref(), most)?))
}

/// `GET /v1/files/{id}`.
///
/// # Errors
/// There is none.
pub async fn one(Shared(state): Shared<Arc<State>>, Name(id): Name) -> Result<Response> {
    Ok(json_response(StatusCode::OK, &object(&find(&state, &id)?)))
}

/// `DELETE /v1/files/{id}`.
///
/// # Errors
/// There is none; a batch reads it.
pub async fn delete(Shared(state): Shared<Arc<State>>, Name(id): Name) -> Result<Response> {
    let removed = id.clone();
    stored(&store(&state)?, &id, move |store| store.remove_file(&removed)).await?;
    let gone = json!({"id": id, "object": "file", "deleted": true});
    Ok(json_response(StatusCode::OK, &gone))
}

/// `GET /v1/files/{id}/content`.
///
/// # Errors
/// There is none.
pub async fn content(Shared(state): Shared<Arc<State>>, Name(id): Name) -> Result<Response> {
    let record = find(&state, &id)?;
    let store = store(&state)?;
    let file = tokio::fs::File::open(store.content(&record.id)).await;
    let file = file.map_err(|error| error_of(&store, &id, error.into()))?;
    Ok(of_file(file, record.bytes, "application/octet-stream"))
}

fn find(state: &State, id: &str) -> Result<FileRecord> {
    store(state)?.file(id, now()).ok_or_else(|| ApiError::not_stored(id))
}

fn word(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Batch => "batch",
        Purpose::BatchOutput => "batch_output",
    }
}

fn object(file: &FileRecord) -> Json {
    json!({
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created,
        "expires_at": file.expires,
        "filename": file.name,
        "purpose": word(file.purpose),
        "status": "processed",
        "status_details": null,
    })
}

#[cfg(test)]
mod tests {
    use super::{STAYS, stays};

    #[test]
    fn a_file_stays_for_a_time_that_may_be() {
        assert_eq!(stays(None, None).unwrap(), STAYS);
        assert_eq!(stays(Some("created_at"), Some("3600")).unwrap(), 3600);
        assert!(stays(Some("created_at"), Some("3599")).is_err());
        assert!(stays(Some("created_at"), None).is_err());
        assert!(stays(None, Some("3600")).is_err());
        assert!(stays(Some("now"), Some("3600")).is_err());
    }
}
