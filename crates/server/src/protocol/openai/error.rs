//! Errors as OpenAI's clients read them: `{"error": {message, type, param, code}}`.

use serde_json::{Value as Json, json};

use crate::error::{ApiError, Kind};

/// The body of `error`.
pub fn body(error: &ApiError) -> Json {
    let (kind, code) = words(error.kind);
    let Kind::ContextLength { tokens, limit } = error.kind else {
        return json!({"error": {
            "message": error.message, "type": kind, "param": error.param, "code": code,
        }});
    };
    // Clients tell this failure from others by these words, and llama.cpp's by the numbers.
    let message = format!(
        "this model's maximum context length is {limit} tokens, and the prompt has {tokens}"
    );
    json!({"error": {
        "message": message, "type": kind, "param": error.param, "code": code,
        "n_prompt_tokens": tokens, "n_ctx": limit,
    }})
}

/// OpenAI's `type` and `code`.
fn words(kind: Kind) -> (&'static str, Option<&'static str>) {
    const INVALID: &str = "invalid_request_error";
    const SERVER: &str = "server_error";
    let (kind, code) = match kind {
        Kind::BadRequest => return (INVALID, None),
        Kind::Value => (INVALID, "invalid_value"),
        Kind::Unsupported => (INVALID, "unsupported_parameter"),
        Kind::UnknownField => (INVALID, "unknown_parameter"),
        Kind::NotJson => (INVALID, "invalid_json"),
        Kind::NoPath => (INVALID, "not_found"),
        Kind::NoModel => (INVALID, "model_not_found"),
        Kind::NotStored => (INVALID, "not_stored"),
        Kind::Method(_) => (INVALID, "method_not_allowed"),
        Kind::BodyTimeout => (INVALID, "request_timeout"),
        Kind::TooLarge => (INVALID, "request_too_large"),
        Kind::MediaType => (INVALID, "unsupported_media_type"),
        Kind::ContextLength { .. } => (INVALID, "context_length_exceeded"),
        Kind::Prompt => (INVALID, "invalid_prompt"),
        Kind::Memory => (INVALID, "memory_limit_exceeded"),
        Kind::Key => ("authentication_error", "invalid_api_key"),
        Kind::Host => ("permission_error", "host_not_allowed"),
        Kind::Origin => ("permission_error", "origin_not_allowed"),
        Kind::Shutdown => ("permission_error", "shutdown_not_allowed"),
        Kind::NoBatches => ("permission_error", "batches_not_kept"),
        Kind::QueueFull => ("rate_limit_error", "queue_full"),
        Kind::Loading => (SERVER, "model_loading"),
        Kind::LoadFailed => (SERVER, "model_load_failed"),
        Kind::Draining => (SERVER, "draining"),
        Kind::OutOfMemory => (SERVER, "out_of_memory"),
        Kind::Closed => (SERVER, "closed"),
        Kind::Unusable => (SERVER, "model_unusable"),
        Kind::Cancelled => (SERVER, "cancelled"),
        Kind::NotThere => ("not_supported_error", "not_supported"),
        Kind::NoSlot => (SERVER, "no_slot"),
        Kind::Internal => (SERVER, "internal_error"),
    };
    (kind, Some(code))
}

#[cfg(test)]
mod tests {
    use inference_core::Error;

    use super::body;
    use crate::error::ApiError;

    #[test]
    fn a_prompt_that_is_too_long_is_told_in_openais_words() {
        let too_long = body(&ApiError::from(Error::PromptTooLong { tokens: 2, limit: 1 }));
        let message = too_long["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("this model's maximum context length is 1 "), "{message}");
        assert_eq!(too_long["error"]["code"], "context_length_exceeded");
        assert_eq!(too_long["error"]["type"], "invalid_request_error");
    }
}
