//! The body of a request, read within its bounds.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use serde_json::{Map, Value as Json};

use super::unread::declared_length;
use crate::error::{ApiError, Result};
use crate::fields::json::kind;
use crate::fields::parse::parse;
use crate::run::state::State;

/// A request's object, and how many bytes it was.
pub type Read = (Map<String, Json>, usize);

/// The request's body, which must be a JSON object.
///
/// # Errors
/// It is not declared as JSON, too large, too slow, no JSON, or no object; a key comes twice.
pub async fn object(state: &State, request: Request) -> Result<Read> {
    check_type(request.headers())?;
    undeclared_object(state, request).await
}

/// The request's body, which must be a JSON object, whatever it is declared as. Ollama's clients
/// declare it as they like. Web pages are kept out by their origin.
///
/// # Errors
/// It is encoded, too large, too slow, no JSON, or no object; a key comes twice.
pub async fn undeclared_object(state: &State, request: Request) -> Result<Read> {
    within(state, request, state.config.limits.body_bytes).await
}

/// [`object`], of so many bytes at most.
///
/// # Errors
/// As [`object`].
pub async fn large_object(state: &State, request: Request, limit: usize) -> Result<Read> {
    check_type(request.headers())?;
    within(state, request, limit).await
}

async fn within(state: &State, request: Request, limit: usize) -> Result<Read> {
    let (parts, body) = request.into_parts();
    check_coding(&parts.headers)?;
    let bytes = bytes_within(state, &parts.headers, body, limit).await?;
    let size = bytes.len();
    match state.read_text(size, move || parse(&bytes)).await? {
        Json::Object(object) => Ok((object, size)),
        other => {
            let found = kind(&other);
            Err(ApiError::bad_request(format!("the body must be a JSON object, not {found}")))
        }
    }
}

/// The bytes of a body, within the server's bounds.
///
/// # Errors
/// It is too large or too slow.
pub async fn bytes(state: &State, headers: &HeaderMap, body: Body) -> Result<Vec<u8>> {
    bytes_within(state, headers, body, state.config.limits.body_bytes).await
}

async fn bytes_within(
    state: &State,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Vec<u8>> {
    let declared = declared_length(headers);
    let timeout = state.config.timeouts.body;
    tokio::time::timeout(timeout, read(body, limit, declared))
        .await
        .map_err(|_| ApiError::timeout(timeout.as_secs_f64()))?
}

/// JSON in UTF-8, as it is.
fn check_type(headers: &HeaderMap) -> Result<()> {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut parts = value.unwrap_or_default().split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let utf8 = |part: &str| match part.split_once('=') {
        Some((name, value)) if name.trim_end().eq_ignore_ascii_case("charset") => {
            value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    };
    if !essence.eq_ignore_ascii_case("application/json") || !parts.all(utf8) {
        let message = "the body must be declared as `Content-Type: application/json`, in UTF-8";
        return Err(ApiError::media_type(message));
    }
    Ok(())
}

/// The body is sent as it is.
fn check_coding(headers: &HeaderMap) -> Result<()> {
    let plain = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(CONTENT_ENCODING).iter().all(plain) {
        let message = "the body must be sent as it is, without `Content-Encoding`";
        return Err(ApiError::media_type(message));
    }
    Ok(())
}

async fn read(mut body: Body, limit: usize, declared: Option<usize>) -> Result<Vec<u8>> {
    if declared.is_some_and(|length| length > limit) {
        return Err(ApiError::too_large(limit));
    }
    let mut bytes = Vec::with_capacity(declared.unwrap_or(0));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::bad_request("the body broke off"))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len().saturating_add(data.len()) > limit {
            return Err(ApiError::too_large(limit));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}
