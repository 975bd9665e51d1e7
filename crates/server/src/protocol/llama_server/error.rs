//! Errors as llama.cpp's clients read them: `{"error": {code, message, type, param}}`, where the
//! code is the status.

use serde_json::{Value as Json, json};

use crate::error::{ApiError, Kind};
use crate::http::response::status;
use crate::protocol::wire::Frame;

/// The paths whose errors these are.
const PATHS: [&str; 5] = ["/completion", "/infill", "/props", "/slots", "/lora-adapters"];

/// Returns true for a path of llama.cpp's server alone.
pub fn is_own(path: &str) -> bool {
    PATHS.contains(&path) || path.starts_with("/slots/")
}

/// The body of `error`.
pub fn body(error: &ApiError) -> Json {
    let status = status(error.kind).as_u16();
    let kind = match error.kind {
        Kind::ContextLength { tokens, limit } => {
            let message = format!(
                "the prompt has {tokens} tokens, which exceeds the available context size of {limit}"
            );
            return json!({"error": {"code": status, "message": message, "param": error.param,
                "type": "exceed_context_size_error", "n_prompt_tokens": tokens, "n_ctx": limit}});
        }
        _ => match status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            501 => "not_supported_error",
            503 => "unavailable_error",
            status if status < 500 => "invalid_request_error",
            _ => "server_error",
        },
    };
    json!({"error": {"code": status, "message": error.message, "type": kind, "param": error.param}})
}

/// The event that ends a stream with `error`.
pub fn failure(error: &ApiError) -> Frame {
    Frame::Data(body(error).to_string())
}

#[cfg(test)]
mod tests {
    use inference_core::Error;

    use super::{body, is_own};
    use crate::error::ApiError;

    #[test]
    fn a_prompt_that_is_too_long_is_told_with_its_numbers() {
        let told = body(&ApiError::from(Error::PromptTooLong { tokens: 20, limit: 10 }));
        let error = &told["error"];
        assert_eq!(error["type"], "exceed_context_size_error");
        assert_eq!((&error["n_prompt_tokens"], &error["n_ctx"]), (&20.into(), &10.into()));
        assert_eq!(body(&ApiError::not_there("no"))["error"]["code"], 501);
    }

    #[test]
    fn paths_of_other_protocols_are_none_of_it() {
        assert!(is_own("/completion") && is_own("/slots/0"));
        assert!(!is_own("/completions") && !is_own("/v1/completions"));
    }
}
