//! Errors of streams that have no response yet.

use serde_json::json;

use crate::error::ApiError;
use crate::protocol::openai;
use crate::protocol::wire::Frame;

/// The only event of a stream that `error` kept from beginning.
pub fn event(error: &ApiError) -> Frame {
    let mut event = openai::error::body(error)["error"].take();
    event["type"] = json!("error");
    event["sequence_number"] = json!(0);
    Frame::Event("error", event)
}
