//! The fields of llama.cpp's own requests, beside those that completions have.

use crate::fields::table::{Field, Kind, UNBOUNDED, hint, honoured, refused, required};
use crate::protocol::openai::tables::PROMPTS;

const FILES: &str = r#"{"type":"array","items":{"type":"object","required":["text"],
    "properties":{"filename":{"type":["string","null"]},"text":{"type":"string"}}}}"#;

/// Fields that `/completion` and `/infill` share.
pub const BOTH: &[Field] = &[
    honoured(
        "max_tokens",
        Kind::Integer(-1, UNBOUNDED),
        "The most tokens of an answer; left out, or -1: to the end of the context.",
    ),
    refused("n_indent", &["0"], "lines have the indentation that the model gives them"),
    refused("t_max_predict_ms", &["0"], "leave the request to end an answer"),
    refused("image_data", &["[]"], "pictures belong to conversations"),
    hint("response_fields", &[], "all fields are told"),
    refused("return_tokens", &["false"], "answers are texts; see /tokenize"),
];

/// `POST /completion`, beside [`BOTH`].
pub const COMPLETION: &[Field] =
    &[required("prompt", Kind::Schema(PROMPTS), "Text or token ids, or an array of one of them.")];

/// `POST /infill`, beside [`BOTH`].
pub const INFILL: &[Field] = &[
    honoured("input_prefix", Kind::Text, "The text before what is filled in."),
    honoured("input_suffix", Kind::Text, "The text behind it."),
    honoured("input_extra", Kind::Array(FILES), "Files that the model is shown before."),
    honoured("prompt", Kind::Text, "What comes behind `input_prefix`."),
];
