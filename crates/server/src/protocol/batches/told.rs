//! Lists and files, as they are told.

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::stream;
use serde_json::{Value as Json, json};
use tokio::io::AsyncReadExt;

use crate::error::{ApiError, Result};
use crate::http::response::text_response;

/// Bytes of a file that are read at once.
const READ: usize = 64 << 10;

/// The page of a list behind `after`, of so many at most.
///
/// # Errors
/// The list does not have `after`.
pub fn page(mut items: Vec<(String, Json)>, after: Option<&str>, most: usize) -> Result<Json> {
    if let Some(after) = after {
        let at = items.iter().position(|(id, _)| id == after);
        let at = at.ok_or_else(|| ApiError::value("after", format!("there is no `{after}`")))?;
        items.drain(..=at);
    }
    let has_more = items.len() > most;
    items.truncate(most);
    Ok(json!({
        "object": "list",
        "first_id": items.first().map(|(id, _)| id),
        "last_id": items.last().map(|(id, _)| id),
        "has_more": has_more,
        "data": items.iter().map(|(_, item)| item).collect::<Vec<_>>(),
    }))
}

/// The length of a page, from 1 to `most`.
///
/// # Errors
/// Another value.
pub fn limit(value: &str, most: usize) -> Result<usize> {
    let limit = value.parse().ok().filter(|limit| (1..=most).contains(limit));
    let reason = || format!("expected a whole number from 1 to {most}");
    limit.ok_or_else(|| ApiError::value("limit", reason()))
}

/// A response with the `bytes` bytes of `file`.
pub fn of_file(file: tokio::fs::File, bytes: u64, media_type: &'static str) -> Response {
    let chunks = stream::try_unfold(file, |mut file| async move {
        let mut bytes = vec![0; READ];
        let count = file.read(&mut bytes).await?;
        bytes.truncate(count);
        Ok::<_, std::io::Error>((count > 0).then(|| (Bytes::from(bytes), file)))
    });
    let mut response = text_response(StatusCode::OK, media_type, Body::from_stream(chunks));
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    response
}
