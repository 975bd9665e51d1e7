//! Protocols: each is a folder with the tables of its fields, what reads them, and a [`Wire`] that
//! writes its answers. What they share lies here.
//!
//! [`Wire`]: wire::Wire

pub mod anthropic;
pub mod batches;
pub mod content;
pub mod conversation;
pub mod encoded;
pub mod generate;
mod generic_tools;
pub mod google;
pub mod hosted;
mod infill;
mod instructions;
pub mod llama_server;
pub mod ollama;
pub mod openai;
pub mod own;
pub mod pictures;
pub mod request;
pub mod respond;
pub mod responses;
pub mod sounds;
pub mod thinking;
mod timings;
mod tokens;
pub mod tools;
pub mod turns;
pub mod waiting;
pub mod wire;

use axum::http::HeaderMap;
use serde_json::Value as Json;

use self::wire::Frame;
use crate::error::ApiError;

/// How a protocol tells errors.
struct Errors {
    /// The beginning of its paths, without the version.
    path: &'static str,
    body: fn(&ApiError) -> Json,
    /// The only event of a stream that could not begin.
    event: fn(&ApiError) -> Frame,
}

const OPENAI: Errors = Errors { path: "", body: openai::error::body, event: openai::head::failure };

/// Google's, whose paths are told by their ends, too.
const GOOGLE: Errors =
    Errors { path: "/v1beta/", body: google::error::body, event: google::error::event };

const LLAMA: Errors = Errors {
    path: "/completion",
    body: llama_server::error::body,
    event: llama_server::error::failure,
};

/// The protocol of each path; the first that fits counts. It holds for every error of the path,
/// also before its route is known.
const ERRORS: &[Errors] = &[
    Errors { path: "/messages", body: anthropic::error::body, event: anthropic::error::event },
    Errors { path: "/responses", event: responses::error::event, ..OPENAI },
    Errors { path: "/api/", body: ollama::error::body, event: ollama::error::line },
    OPENAI,
];

/// The header that each request of Anthropic's clients has.
const ANTHROPIC: &str = "anthropic-version";

/// Finds the writer of errors' bodies for a request for `path` with `headers`. Where the path is of
/// no protocol of its own, such as that of the models, Anthropic's and Google's clients read
/// theirs.
pub fn error_body(path: &str, headers: &HeaderMap) -> fn(&ApiError) -> Json {
    let errors = of_path(path);
    match errors.path.is_empty() {
        true if headers.contains_key(ANTHROPIC) => anthropic::error::body,
        true if google::action::is_client(headers) => google::error::body,
        _ => errors.body,
    }
}

/// The only event of a stream that `error` kept from beginning, as the protocol of `path` has it.
fn error_event(path: &str, error: &ApiError) -> Frame {
    (of_path(path).event)(error)
}

fn of_path(path: &str) -> &'static Errors {
    if google::action::is_own(path) {
        return &GOOGLE;
    }
    if llama_server::error::is_own(path) {
        return &LLAMA;
    }
    let path = path.strip_prefix("/v1").unwrap_or(path);
    ERRORS.iter().find(|errors| path.starts_with(errors.path)).unwrap_or(&OPENAI)
}
