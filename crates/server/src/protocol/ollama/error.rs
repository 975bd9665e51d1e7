//! Errors as Ollama's clients read them: `{"error": MESSAGE}`.

use serde_json::{Value as Json, json};

use crate::error::ApiError;
use crate::protocol::wire::Frame;

/// The body of `error`. The field that is at fault stands beside the message.
pub fn body(error: &ApiError) -> Json {
    let mut body = json!({"error": error.message});
    if let Some(param) = &error.param {
        body["param"] = json!(param);
    }
    body
}

/// The line that ends a stream with `error`.
pub fn line(error: &ApiError) -> Frame {
    Frame::Data(body(error).to_string())
}
