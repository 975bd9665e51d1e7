//! Errors as OpenAI's clients read them: `{"error": {message, type, param, code}}` and a status.

use axum::http::header::{ALLOW, CONNECTION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use inference_core::Error;
use serde_json::{Value, json};

use crate::body;

/// The result of everything that a client can cause.
pub type Result<T, E = ApiError> = std::result::Result<T, E>;

/// An answer that is an error.
#[derive(Clone, Debug)]
pub struct ApiError {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    param: Option<String>,
    message: String,
    /// Seconds after which the client may try again.
    retry_after: Option<u64>,
    /// What the method should have been.
    allow: Option<&'static str>,
    /// The rest of the request was not read, so that the connection cannot be used again.
    close: bool,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        ApiError {
            status,
            kind,
            code: None,
            param: None,
            message: message.into(),
            retry_after: None,
            allow: None,
            close: false,
        }
    }

    /// The same error, about `param` where it is about no field yet and the request is at fault.
    pub fn or_about(self, param: &str) -> Self {
        match self.param {
            None if self.status == StatusCode::BAD_REQUEST => self.about(param),
            _ => self,
        }
    }

    fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// The same error, about the request's field `param`.
    pub fn about(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    fn invalid(status: StatusCode, message: impl Into<String>) -> Self {
        ApiError::new(status, "invalid_request_error", message)
    }

    /// A request that cannot be read or means nothing.
    pub fn bad_request(message: impl Into<String>) -> Self {
        ApiError::invalid(StatusCode::BAD_REQUEST, message)
    }

    /// A field whose value cannot be.
    pub fn value(param: impl Into<String>, message: impl AsRef<str>) -> Self {
        let param = param.into();
        let message = format!("`{param}`: {}", message.as_ref());
        ApiError::bad_request(message).code("invalid_value").about(param)
    }

    /// A field, or a value of it, that this server or this model does not honour.
    pub fn unsupported(param: impl Into<String>, reason: impl AsRef<str>) -> Self {
        let param = param.into();
        let message = format!("`{param}` is not supported: {}", reason.as_ref());
        ApiError::bad_request(message).code("unsupported_parameter").about(param)
    }

    /// A field that no table knows.
    pub fn unknown_field(param: impl Into<String>) -> Self {
        let param = param.into();
        let message = format!("unknown field `{param}`; nothing is ignored, so take it out");
        ApiError::bad_request(message).code("unknown_parameter").about(param)
    }

    /// Text that is not JSON.
    pub fn not_json(error: &serde_json::Error) -> Self {
        ApiError::bad_request(format!("the body is not JSON: {error}")).code("invalid_json")
    }

    /// No key, or a wrong one.
    pub fn invalid_key(message: &str) -> Self {
        ApiError::new(StatusCode::UNAUTHORIZED, "authentication_error", message)
            .code("invalid_api_key")
    }

    /// A `Host` or `Origin` that is not allowed.
    pub fn forbidden(code: &'static str, message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::FORBIDDEN, "permission_error", message).code(code)
    }

    /// A path that leads nowhere.
    pub fn not_found(path: &str) -> Self {
        ApiError::invalid(StatusCode::NOT_FOUND, format!("there is nothing at `{path}`"))
            .code("not_found")
    }

    /// A model that is not the served one.
    pub fn model_not_found(asked: &str, served: &str) -> Self {
        let message = format!("the model `{asked}` does not exist; this server has `{served}`");
        ApiError::invalid(StatusCode::NOT_FOUND, message).code("model_not_found").about("model")
    }

    /// Another method than the path takes.
    pub fn method(method: &str, path: &str, allow: &'static str) -> Self {
        let message = format!("`{path}` takes {allow}, not {method}");
        let mut error =
            ApiError::invalid(StatusCode::METHOD_NOT_ALLOWED, message).code("method_not_allowed");
        error.allow = Some(allow);
        error
    }

    /// A body that did not come in time.
    pub fn timeout(seconds: f64) -> Self {
        let message = format!("the body was not complete after {seconds} s");
        ApiError::invalid(StatusCode::REQUEST_TIMEOUT, message).code("request_timeout").closing()
    }

    /// A body beyond the limit.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("the body is larger than {limit} bytes");
        ApiError::invalid(StatusCode::PAYLOAD_TOO_LARGE, message)
            .code("request_too_large")
            .closing()
    }

    /// A body that is not declared as JSON, or is compressed.
    pub fn media_type(message: &str) -> Self {
        ApiError::invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
            .code("unsupported_media_type")
    }

    /// More requests wait than may.
    pub fn queue_full(waiting: usize, retry_after: u64) -> Self {
        let message =
            format!("{waiting} requests are waiting, as many as may; try again in {retry_after} s");
        let mut error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message)
            .code("queue_full");
        error.retry_after = Some(retry_after);
        error
    }

    /// The server runs but cannot answer now.
    pub fn unavailable(code: &'static str, message: &str, retry_after: u64) -> Self {
        let mut error =
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message).code(code);
        error.retry_after = Some(retry_after);
        error
    }

    /// A fault of the server's own.
    pub fn internal(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
            .code("internal_error")
    }

    fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    /// Names `field` where the error names the contract's `option`.
    pub fn rename(mut self, option: &str, field: &str) -> Self {
        if self.param.as_deref() == Some(option) {
            self.message = self.message.replace(&format!("`{option}`"), &format!("`{field}`"));
            self.param = Some(field.to_owned());
        }
        self
    }

    /// The object that clients read.
    pub fn body(&self) -> Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }})
    }
}

/// The request's field for an option of the contract.
fn field(option: &str) -> &str {
    match option {
        "xtc" | "xtc.probability" => "xtc_probability",
        "xtc.threshold" => "xtc_threshold",
        "special_tokens" => "skip_special_tokens",
        other => other,
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::InvalidOption { option, reason } => ApiError::value(field(option), reason),
            Error::Unsupported { what, reason } => ApiError::unsupported(field(&what), reason),
            // Clients tell this failure from others by OpenAI's words for it.
            Error::PromptTooLong { tokens, limit } => ApiError::bad_request(format!(
                "this model's maximum context length is {limit} tokens, and the prompt has {tokens}"
            ))
            .code("context_length_exceeded"),
            Error::Prompt(_) | Error::EmptyPrompt => {
                ApiError::bad_request(message).code("invalid_prompt")
            }
            Error::Memory { .. } => ApiError::bad_request(message).code("memory_limit_exceeded"),
            Error::QueueFull { limit } => ApiError::queue_full(limit, 1),
            Error::Closed => ApiError::unavailable("closed", &message, 5),
            Error::Cancelled => {
                ApiError::unavailable("cancelled", "the request was cancelled by the server", 1)
            }
            _ => ApiError::internal(message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = body::json_response(self.status, &self.body());
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use inference_core::Error;

    use super::ApiError;

    #[test]
    fn an_option_of_the_contract_is_named_by_the_requests_field() {
        let option = Error::InvalidOption { option: "xtc.threshold", reason: "no".into() };
        let error = ApiError::from(option);
        assert_eq!(error.body()["error"]["param"], "xtc_threshold");
        let what = Error::Unsupported { what: "constraint".into(), reason: "no grammar".into() };
        let error = ApiError::from(what).rename("constraint", "response_format").body();
        assert_eq!(error["error"]["param"], "response_format");
        assert_eq!(error["error"]["message"], "`response_format` is not supported: no grammar");
    }

    #[test]
    fn each_kind_of_failure_has_its_status() {
        let status = |error| ApiError::from(error).status.as_u16();
        assert_eq!(status(Error::PromptTooLong { tokens: 2, limit: 1 }), 400);
        let too_long = ApiError::from(Error::PromptTooLong { tokens: 2, limit: 1 }).body();
        let message = too_long["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("this model's maximum context length is 1 "), "{message}");
        assert_eq!(status(Error::EmptyPrompt), 400);
        assert_eq!(status(Error::QueueFull { limit: 1 }), 429);
        assert_eq!(status(Error::Closed), 503);
        assert_eq!(status(Error::Engine("device lost".into())), 500);
    }
}
