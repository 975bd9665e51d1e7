//! The fields of the requests that OpenAI does not have.

use crate::fields::table::{Field, Kind, UNBOUNDED, alias, honoured, nothing, refused, required};
use crate::protocol::openai::tables::{IDS, MESSAGES, MODEL, PROMPTS, TOOLS, TRUNCATE, VARIABLES};

/// Fields that all requests share that may have a conversation.
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
    honoured(
        "continue_final_message",
        Kind::Bool,
        "Ends the prompt behind the text of the last message, which is the assistant's.",
    ),
];

/// `POST /apply-template`, beside [`TEMPLATE`].
pub const APPLY_TEMPLATE: &[Field] = &[required("messages", MESSAGES, "The conversation.")];

/// `POST /tokenize`, beside [`TEMPLATE`]; one of these.
pub const TOKENIZE: &[Field] = &[
    honoured("messages", MESSAGES, "The conversation."),
    honoured("prompt", Kind::Text, "The text; or `messages` in its place."),
    honoured("content", Kind::Text, "Another name of `prompt`."),
    honoured(
        "with_pieces",
        Kind::Bool,
        "Each of `tokens` is an object of its `id` and its `piece`: text, or bytes.",
    ),
    honoured(
        "add_special",
        Kind::Bool,
        "Whether the text begins with the tokens that the model puts before each.",
    ),
    alias("add_special_tokens", "add_special", Kind::Bool),
    honoured("return_token_strs", Kind::Bool, "Also tell the tokens as texts, as `token_strs`."),
    refused("parse_special", &["true"], "special tokens in a text are tokens"),
];

/// `POST /detokenize`.
pub const DETOKENIZE: &[Field] = &[MODEL, required("tokens", Kind::Array(IDS), "Token ids.")];

/// `POST /v1/classify`, beside [`TEMPLATE`]; `input` or `messages`.
pub const CLASSIFY: &[Field] = &[
    honoured(
        "messages",
        MESSAGES,
        "One conversation, which may have pictures, in the place of `input`.",
    ),
    honoured("input", Kind::Schema(PROMPTS), "Text, token ids, or an array of either."),
    honoured(
        "labels",
        Kind::Array(r#"{"type":"array","items":{"type":"string"}}"#),
        "Continuations to choose from.",
    ),
    nothing("user", Kind::Text, "A name for the user."),
];

/// `POST /v1/inspect`, beside [`TEMPLATE`]; `prompt` or `messages`.
pub const INSPECT: &[Field] = &[
    honoured(
        "messages",
        MESSAGES,
        "A conversation, which may have pictures, in the place of `prompt`.",
    ),
    honoured(
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

const DOCUMENTS: &str = r#"{"type":"array","minItems":1,"items":{"anyOf":[{"type":"string"},
    {"type":"object","properties":{"text":{"type":"string"}},"required":["text"],
        "additionalProperties":false}]}}"#;

/// `POST /v1/rerank`.
pub const RERANK: &[Field] = &[
    honoured("model", Kind::Text, "The reranker's name. Left out: the served one."),
    required("query", Kind::Text, "What is looked for."),
    honoured("documents", Kind::Array(DOCUMENTS), "Texts that may answer it."),
    honoured(
        "texts",
        Kind::Array(DOCUMENTS),
        "`documents` of Text Embeddings Inference, whose form the answer has then.",
    ),
    honoured("top_n", Kind::Integer(1, UNBOUNDED), "How many are told. Left out: all."),
    honoured("return_documents", Kind::Bool, "Whether the texts are sent back."),
    alias("return_text", "return_documents", Kind::Bool),
    honoured("raw_scores", Kind::Bool, "Whether scores are logits, not between 0 and 1."),
    honoured("instruction", Kind::Text, "What makes a document fit, for models that are told."),
    TRUNCATE,
    refused("rank_fields", &[], "documents are texts"),
    refused("max_chunks_per_doc", &[], "a document is one chunk; `truncate` cuts long ones"),
    refused("relevant_spans", &[], "documents are scored as a whole"),
    refused("priority", &["0"], "requests are answered in the order in which they come"),
    refused("max_tokens_per_doc", &[], "the model has one limit; `truncate` cuts long ones"),
    nothing("user", Kind::Text, "A name for the user."),
];
