//! Functions that the programs in `src/bin` share.

#![forbid(unsafe_code)]

use inference_core::Value;
use inference_text::json;

/// The value of a JSON text; the text itself where it is no JSON.
pub fn value(text: &str) -> Value {
    serde_json::from_str(text).map_or_else(|_| Value::from(text), json::to_value)
}
