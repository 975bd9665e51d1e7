//! The fields of batches' requests, all of them.

use crate::fields::table::{Field, Kind, honoured, required};

/// The paths whose requests a batch may have.
pub const ENDPOINTS: &[&str] =
    &["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"];

const STAYS: &str = r#"{"type":"object","required":["anchor","seconds"],"additionalProperties":false,
    "properties":{"anchor":{"const":"created_at"},"seconds":{"type":"integer","minimum":3600,"maximum":2592000}}}"#;

/// `POST /v1/batches`.
pub const BATCHES: &[Field] = &[
    required("input_file_id", Kind::Text, "The file with the requests, a line of JSON each."),
    required("endpoint", Kind::OneOf(ENDPOINTS), "The path of all requests."),
    required(
        "completion_window",
        Kind::Text,
        "The time of the batch: hours such as `24h` or days such as `7d`, 30 days at most.",
    ),
    honoured("metadata", Kind::Labels, "Labels of the batch, which it tells again."),
    honoured(
        "output_expires_after",
        Kind::Object(STAYS),
        "How long the files of answers and errors stay: 30 days unless it says otherwise.",
    ),
];
