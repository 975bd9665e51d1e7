//! Errors as Google's clients read them: `{"error": {code, message, status}}`.

use axum::http::StatusCode;
use serde_json::{Value as Json, json};

use crate::error::ApiError;
use crate::http::response::status;
use crate::protocol::wire::Frame;

/// The body of `error`. Its details name the field, and the time after which to try again.
pub fn body(error: &ApiError) -> Json {
    let code = status(error.kind);
    let mut told = json!({"code": code.as_u16(), "message": error.message, "status": word(code)});
    let mut details = Vec::new();
    if let Some(field) = &error.param {
        let violation = json!({"field": field, "description": error.message});
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [violation],
        }));
    }
    if let Some(seconds) = error.retry_after {
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": format!("{seconds}s"),
        }));
    }
    if !details.is_empty() {
        told["details"] = Json::Array(details);
    }
    json!({"error": told})
}

/// The event that ends a stream with `error`.
pub fn event(error: &ApiError) -> Frame {
    Frame::Data(body(error).to_string())
}

/// Google's `status`.
fn word(code: StatusCode) -> &'static str {
    match code {
        StatusCode::UNAUTHORIZED => "UNAUTHENTICATED",
        StatusCode::FORBIDDEN => "PERMISSION_DENIED",
        StatusCode::NOT_FOUND => "NOT_FOUND",
        StatusCode::METHOD_NOT_ALLOWED => "UNIMPLEMENTED",
        StatusCode::REQUEST_TIMEOUT => "DEADLINE_EXCEEDED",
        StatusCode::TOO_MANY_REQUESTS => "RESOURCE_EXHAUSTED",
        StatusCode::SERVICE_UNAVAILABLE => "UNAVAILABLE",
        code if code.is_client_error() => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
}

#[cfg(test)]
mod tests {
    use super::body;
    use crate::error::ApiError;

    #[test]
    fn an_error_names_the_field_and_the_time_to_come_again() {
        let error = body(&ApiError::value("generationConfig.topP", "no"))["error"].clone();
        assert_eq!((&error["code"], &error["status"]), (&400.into(), &"INVALID_ARGUMENT".into()));
        assert_eq!(error["details"][0]["fieldViolations"][0]["field"], "generationConfig.topP");
        let error = body(&ApiError::queue_full(3, 7))["error"].clone();
        assert_eq!(error["status"], "RESOURCE_EXHAUSTED");
        assert_eq!(error["details"][0]["retryDelay"], "7s");
        assert_eq!(body(&ApiError::panicked())["error"]["status"], "INTERNAL");
    }
}
