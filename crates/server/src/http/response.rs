//! Responses: a text, JSON, or an error whose body the protocol of the path writes.

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value as Json;

use crate::error::{ApiError, Kind};

/// Writes an error's body as a protocol has it.
pub type ErrorBody = fn(&ApiError) -> Json;

/// Finds what writes the bodies of errors, by the path and the headers of their request.
pub type FindErrorBody = fn(&str, &HeaderMap) -> ErrorBody;

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

/// The status of an error, which is HTTP's and not a protocol's.
pub fn status(kind: Kind) -> StatusCode {
    match kind {
        kind if kind.is_bad_request() => StatusCode::BAD_REQUEST,
        Kind::Key => StatusCode::UNAUTHORIZED,
        Kind::Host | Kind::Origin | Kind::Shutdown | Kind::NoBatches => StatusCode::FORBIDDEN,
        Kind::NoPath | Kind::NoModel | Kind::NotStored => StatusCode::NOT_FOUND,
        Kind::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
        Kind::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
        Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Kind::QueueFull => StatusCode::TOO_MANY_REQUESTS,
        Kind::NotThere => StatusCode::NOT_IMPLEMENTED,
        Kind::NoSlot
        | Kind::Loading
        | Kind::LoadFailed
        | Kind::Draining
        | Kind::OutOfMemory
        | Kind::Closed
        | Kind::Unusable
        | Kind::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The status and the headers of the error. Its body is written by [`written`], where the request
/// is
/// known.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = status(self.kind).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        match self.kind {
            Kind::Method(allow) => {
                headers.insert(ALLOW, HeaderValue::from_static(allow));
            }
            Kind::Key => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the body of the error that `response` is, where it is one; the error.
pub fn written(response: &mut Response, body: ErrorBody) -> Option<ApiError> {
    let error = response.extensions_mut().remove::<ApiError>()?;
    *response.body_mut() = Body::from(body(&error).to_string());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Some(error)
}

#[cfg(test)]
mod tests {
    use inference_core::Error;

    use super::status;
    use crate::error::ApiError;

    #[test]
    fn each_kind_of_failure_has_its_status() {
        let status = |error| status(ApiError::from(error).kind).as_u16();
        assert_eq!(status(Error::PromptTooLong { tokens: 2, limit: 1 }), 400);
        assert_eq!(status(Error::EmptyPrompt), 400);
        assert_eq!(status(Error::QueueFull { limit: 1 }), 429);
        assert_eq!(status(Error::Closed), 503);
        assert_eq!(status(Error::Unusable("rank 1 is lost".into())), 503);
        let (what, reason) = ("decode step 3".to_owned(), "no".to_owned());
        assert_eq!(status(Error::OutOfMemory { what, reason }), 503);
        assert_eq!(status(Error::Engine("device lost".into())), 500);
    }
}
