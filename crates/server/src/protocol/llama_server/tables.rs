//! The fields of llama.cpp's own requests, beside those that completions have.

use crate::fields::table::{Field, Kind, UNBOUNDED, alias, honoured, refused, required};

const FILES: &str = r#"{"type":"array","items":{"type":"object","required":["text"],
    "properties":{"filename":{"type":["string","null"]},"text":{"type":"string"}}}}"#;

const NAMES: &str = r#"{"type":"array","items":{"type":"string"}}"#;

/// An object with a text, in either form.
macro_rules! object {
    () => {
        r#"{"type":"object","required":["prompt_string"],"additionalProperties":false,"properties":
        {"prompt_string":{"type":"string"},"multimodal_data":{"type":"array","maxItems":0}}},
    {"type":"object","required":["content"],"additionalProperties":false,"properties":
        {"content":{"type":"array","minItems":1,"items":{"type":"object","required":["type","text"],
        "additionalProperties":false,
        "properties":{"type":{"const":"text"},"text":{"type":"string"}}}}}}"#
    };
}

/// The id of a token.
macro_rules! id {
    () => {
        r#"{"type":"integer","minimum":0,"maximum":4294967295}"#
    };
}

/// Prompts as llama.cpp's requests have them.
pub const PROMPTS: &str = concat!(
    r#"{"anyOf":[{"type":"string"},"#,
    object!(),
    r#",{"type":"array","minItems":1,"items":{"anyOf":[{"type":"string"},"#,
    id!(),
    r#"]}},{"type":"array","minItems":1,"items":{"anyOf":[{"type":"string"},"#,
    object!(),
    r#",{"type":"array","minItems":1,"items":{"anyOf":[{"type":"string"},"#,
    id!(),
    "]}}]}}]}"
);

/// Texts that vectors are made of, or their ids.
pub const TEXTS: &str = concat!(
    r#"{"anyOf":[{"type":"string"},"#,
    object!(),
    r#",{"type":"array","minItems":1,"items":"#,
    id!(),
    r#"},{"type":"array","minItems":1,"items":{"anyOf":[{"type":"string"},"#,
    object!(),
    r#",{"type":"array","minItems":1,"items":"#,
    id!(),
    "}]}}]}"
);

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
    alias("n_cmpl", "n", Kind::Integer(1, |limits| limits.choices as i64)),
    honoured(
        "n_probs",
        Kind::Integer(0, |limits| limits.top_logprobs as i64),
        "Report each token's log probability, and so many likeliest tokens.",
    ),
    refused("post_sampling_probs", &["false"], "log probabilities are those before filters"),
    honoured("return_tokens", Kind::Bool, "A whole answer has the ids of its `tokens`."),
    honoured(
        "response_fields",
        Kind::Array(NAMES),
        "The only fields that the end of an answer has, such as `timings/predicted_n`.",
    ),
];

/// `POST /completion`, beside [`BOTH`].
pub const COMPLETION: &[Field] = &[required(
    "prompt",
    Kind::Schema(PROMPTS),
    "Text, token ids, both in turn, or an array of these.",
)];

/// `POST /infill`, beside [`BOTH`].
pub const INFILL: &[Field] = &[
    honoured("input_prefix", Kind::Text, "The text before what is filled in."),
    honoured("input_suffix", Kind::Text, "The text behind it."),
    honoured("input_extra", Kind::Array(FILES), "Files that the model is shown before."),
    honoured("prompt", Kind::Text, "What comes behind `input_prefix`."),
];

/// `POST /v1/models/load` and `POST /v1/models/unload`.
pub const LOAD: &[Field] = &[required("model", Kind::Text, "The model's name.")];
