//! Bodies: a request's, read within its bounds, and a response's.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::{Map, Value as Json};

use crate::config::Config;
use crate::error::{ApiError, Result};
use crate::json::kind;

/// So many bodies' worth of bytes are read and dropped, so that a client that writes its whole
/// request before it reads gets to see why it was refused.
const DRAIN_FACTOR: usize = 8;

/// The request's body, which must be a JSON object.
///
/// # Errors
/// It is not declared as JSON, too large, too slow, no JSON, or no object.
pub async fn object(config: &Config, request: Request) -> Result<Map<String, Json>> {
    let (parts, body) = request.into_parts();
    if !is_json(&parts.headers) {
        return Err(ApiError::media_type());
    }
    let limit = config.limits.body_bytes;
    let declared = parts.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    let timeout = config.timeouts.body;
    let bytes = tokio::time::timeout(timeout, read(body, limit, declared))
        .await
        .map_err(|_| ApiError::timeout(timeout.as_secs_f64()))??;
    match serde_json::from_slice(&bytes) {
        Ok(Json::Object(object)) => Ok(object),
        Ok(other) => {
            let found = kind(&other);
            Err(ApiError::bad_request(format!("the body must be a JSON object, not {found}")))
        }
        Err(error) => Err(ApiError::not_json(&error)),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

async fn read(mut body: Body, limit: usize, declared: Option<usize>) -> Result<Vec<u8>> {
    let most = limit.saturating_mul(DRAIN_FACTOR);
    if declared.is_some_and(|length| length > most) {
        return Err(ApiError::too_large(limit));
    }
    let mut bytes = Vec::with_capacity(declared.unwrap_or(0).min(limit));
    let mut total = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::bad_request("the body broke off"))?;
        let Ok(data) = frame.into_data() else { continue };
        total = total.saturating_add(data.len());
        if total <= limit {
            bytes.extend_from_slice(&data);
        } else if total > most {
            break;
        }
    }
    if total > limit { Err(ApiError::too_large(limit)) } else { Ok(bytes) }
}

/// A response of `json`.
pub fn json_response(status: StatusCode, json: &Json) -> Response {
    text_response(status, "application/json", json.to_string())
}

/// A response of `text` as `media_type`.
pub fn text_response(
    status: StatusCode,
    media_type: &'static str,
    text: impl Into<Body>,
) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
