//! Errors as Anthropic's clients read them: `{"type": "error", "error": {type, message}}`.

use serde_json::{Value as Json, json};

use super::tables::THREAD;
use crate::error::{ApiError, Kind};
use crate::protocol::wire::Frame;

/// The body of `error`.
pub fn body(error: &ApiError) -> Json {
    // Clients tell this failure from others by these words.
    let message = match error.kind {
        Kind::ContextLength { tokens, limit } => {
            format!("prompt is too long: {tokens} tokens > {limit} maximum")
        }
        _ => error.message.clone(),
    };
    let mut told = json!({"type": word(error.kind), "message": message});
    if error.kind == Kind::Unsupported && error.param.as_deref() == Some(THREAD) {
        // By this they know that the same conversation goes without a thread.
        told["details"] =
            json!({"error_code": "thread_unsupported_request", "unsupported": [THREAD]});
    }
    json!({"type": "error", "error": told})
}

/// The event that ends a stream with `error`.
pub fn event(error: &ApiError) -> Frame {
    Frame::Event("error", body(error))
}

/// Anthropic's `type`.
fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Key => "authentication_error",
        Kind::Host | Kind::Origin | Kind::Shutdown | Kind::NoBatches => "permission_error",
        Kind::NoPath | Kind::NoModel | Kind::NotStored => "not_found_error",
        Kind::TooLarge => "request_too_large",
        Kind::QueueFull => "rate_limit_error",
        Kind::Loading | Kind::Draining | Kind::Closed | Kind::Cancelled => "overloaded_error",
        Kind::Internal | Kind::LoadFailed | Kind::Unusable => "api_error",
        _ => "invalid_request_error",
    }
}

#[cfg(test)]
mod tests {
    use inference_core::Error;

    use super::body;
    use crate::error::ApiError;

    #[test]
    fn a_prompt_that_is_too_long_is_told_in_anthropics_words() {
        let too_long = body(&ApiError::from(Error::PromptTooLong { tokens: 2, limit: 1 }));
        assert_eq!(too_long["error"]["type"], "invalid_request_error");
        assert_eq!(too_long["error"]["message"], "prompt is too long: 2 tokens > 1 maximum");
    }
}
