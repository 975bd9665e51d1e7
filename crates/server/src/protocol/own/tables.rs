//! The fields of the requests that OpenAI does not have.

use crate::fields::table::{Field, Kind, honoured, nothing, required};
use crate::protocol::openai::tables::{IDS, MESSAGES, MODEL, PROMPTS, TOOLS, VARIABLES};

/// What `/apply-template` and `/tokenize` share.
pub const TEMPLATE: &[Field] = &[
    MODEL,
    honoured("tools", TOOLS, "Functions that the answer may call."),
    honoured(
        "chat_template_kwargs",
        Kind::Object(VARIABLES),
        "Further variables of the chat template.",
    ),
    honoured(
        "add_generation_prompt",
        Kind::Bool,
        "`false` ends the prompt after the last message.",
    ),
];

/// `POST /apply-template`, beside [`TEMPLATE`].
pub const APPLY_TEMPLATE: &[Field] = &[required("messages", MESSAGES, "The conversation.")];

/// `POST /tokenize`, beside [`TEMPLATE`]; one of these.
pub const TOKENIZE: &[Field] = &[
    honoured("messages", MESSAGES, "The conversation."),
    honoured("prompt", Kind::Text, "The text; or `messages` in its place."),
    honoured("content", Kind::Text, "Another name of `prompt`."),
];

/// `POST /detokenize`.
pub const DETOKENIZE: &[Field] = &[MODEL, required("tokens", Kind::Array(IDS), "Token ids.")];

/// `POST /v1/classify`.
pub const CLASSIFY: &[Field] = &[
    MODEL,
    required("input", Kind::Schema(PROMPTS), "Text, token ids, or an array of either."),
    honoured(
        "labels",
        Kind::Array(r#"{"type":"array","items":{"type":"string"}}"#),
        "Continuations to choose from.",
    ),
    nothing("user", Kind::Text, "A name for the user."),
];

/// `POST /v1/inspect`.
pub const INSPECT: &[Field] = &[
    MODEL,
    required(
        "prompt",
        Kind::Schema(
            r#"{"anyOf":[{"type":"string"},{"type":"array","minItems":1,
            "items":{"type":"integer","minimum":0,"maximum":4294967295}}]}"#,
        ),
        "Text or token ids.",
    ),
    honoured(
        "layers",
        Kind::Array(
            r#"{"type":"array","items":{"type":"integer","minimum":0,"maximum":4294967295}}"#,
        ),
        "Which layers; left out: all.",
    ),
    honoured("values", Kind::Bool, "Report keys and queries themselves, not their shapes alone."),
    honoured("weights", Kind::Bool, "Also the attention weights, and their entropy in nats."),
];
