//! Protocols: each is a folder with the tables of its fields, what reads them, and a [`Wire`] that
//! writes its answers. What they share lies here.
//!
//! [`Wire`]: wire::Wire

pub mod anthropic;
pub mod content;
pub mod conversation;
pub mod generate;
pub mod ollama;
pub mod openai;
pub mod own;
pub mod pictures;
pub mod request;
pub mod respond;
pub mod responses;
pub mod tools;
pub mod turns;
pub mod waiting;
pub mod wire;

use serde_json::Value as Json;

use crate::error::ApiError;

/// What writes the body of an error.
type ErrorBody = fn(&ApiError) -> Json;

/// The protocol of each path, by how the path begins; the first that fits counts. It holds for every
/// error of the path, also before its route is known.
const ERRORS: &[(&str, ErrorBody)] = &[
    ("/v1/messages", anthropic::error::body),
    ("/api/", ollama::error::body),
    ("", openai::error::body),
];

/// The body of `error`, as the protocol of `path` has it.
pub fn error_body(path: &str, error: &ApiError) -> Json {
    let own = ERRORS.iter().find(|(begin, _)| path.starts_with(begin));
    own.map_or(openai::error::body as ErrorBody, |(_, body)| *body)(error)
}
