//! The fields of Anthropic's requests, all of them.

use crate::fields::table::{Field, Kind, UNBOUNDED, hint, honoured, nothing, refused, required};

const STRINGS: &str = r#"{"type":"array","items":{"type":"string","minLength":1}}"#;
const SYSTEM: &str = r#"{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object",
    "required":["type","text"],"properties":{"type":{"const":"text"},"text":{"type":"string"}}}}]}"#;
const MESSAGES: &str = r#"{"type":"array","minItems":1,"items":{"type":"object",
    "required":["role","content"],"additionalProperties":false,"properties":{
    "role":{"enum":["user","assistant","system"]},
    "content":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object",
        "required":["type"],"properties":{"type":{"enum":["text","image","thinking","tool_use","tool_result"]}}}}]}}}}"#;
const TOOLS: &str = r#"{"type":"array","items":{"type":"object","required":["name","input_schema"],
    "properties":{"name":{"type":"string","pattern":"^[A-Za-z0-9_.-]{1,128}$"},
    "input_schema":{"type":"object"}}}}"#;
const TOOL_CHOICE: &str = r#"{"type":"object","required":["type"],"additionalProperties":false,
    "properties":{"type":{"enum":["auto","any","tool","none"]},"name":{"type":"string"},
    "disable_parallel_tool_use":{"type":"boolean"}}}"#;
const THINKING: &str = r#"{"type":"object","required":["type"],"additionalProperties":false,
    "properties":{"type":{"enum":["enabled","adaptive","disabled"]},
    "budget_tokens":{"type":"integer","minimum":1024},
    "display":{"anyOf":[{"enum":["summarized","omitted"]},{"type":"null"}]}}}"#;
const OUTPUT: &str = r#"{"type":"object","additionalProperties":false,"properties":{
    "effort":{"anyOf":[{"enum":["low","medium","high","xhigh","max"]},{"type":"null"}]},
    "format":{"anyOf":[{"type":"object","required":["type","schema"],"additionalProperties":false,
        "properties":{"type":{"const":"json_schema"},"schema":{"type":"object"}}},{"type":"null"}]}}}"#;

/// Hints what to cache, beside the request's own fields too.
pub const CACHE: &[Field] = &[
    nothing("type", Kind::OneOf(&["ephemeral"]), "The kind of cache."),
    nothing("ttl", Kind::OneOf(&["5m", "1h"]), "How long to keep it."),
    nothing("scope", Kind::Text, "Who shares it."),
];
/// The field of a conversation that Anthropic's servers keep.
pub const THREAD: &str = "thread";

const METADATA: &[Field] = &[nothing("user_id", Kind::Text, "A name for the user.")];

/// Fields that `/v1/messages` and `/v1/messages/count_tokens` share.
pub const CONVERSATION: &[Field] = &[
    required("model", Kind::Text, "The served model's name."),
    required("messages", Kind::Array(MESSAGES), "The conversation."),
    honoured("system", Kind::Schema(SYSTEM), "Instructions that the conversation begins with."),
    honoured("tools", Kind::Array(TOOLS), "Tools that the answer may call."),
    honoured(
        "tool_choice",
        Kind::Object(TOOL_CHOICE),
        "Whether it must, and whether it may make several calls.",
    ),
    honoured(
        "thinking",
        Kind::Object(THINKING),
        "Whether to think, where the model's template knows of it, and whether thoughts are told.",
    ),
    honoured(
        "output_config",
        Kind::Object(OUTPUT),
        "`effort`, where the model's template knows of it; `format`: a JSON schema.",
    ),
    nothing(
        "cache_control",
        Kind::Fields(CACHE),
        "A hint what to cache; the cache finds prompts by their tokens.",
    ),
    nothing("user_profile_id", Kind::Text, "A name for the user."),
    hint("speed", &["\"standard\""], "there is one speed"),
    refused("mcp_servers", &["[]"], "the server connects to no other servers"),
    refused(
        "context_management",
        &[
            "{\"edits\":[]}",
            "{}",
            // Claude Code's own, which asks that nothing be taken out.
            "{\"edits\":[{\"type\":\"clear_thinking_20251015\",\"keep\":\"all\"}]}",
        ],
        "conversations are taken as they are",
    ),
    hint("fallback_credit_token", &[], "there is one model"),
    // Clients go on without it where the error has the details that this one gets.
    refused(
        THREAD,
        &[],
        "conversations are not kept; send the whole of it (in Anthropic's packages: `thread=False`)",
    ),
];

/// `POST /v1/messages`, beside [`CONVERSATION`].
pub const CREATE: &[Field] = &[
    required("max_tokens", Kind::Integer(0, UNBOUNDED), "The most tokens of the answer."),
    honoured("stream", Kind::Bool, "Answer in server-sent events."),
    honoured("stop_sequences", Kind::Array(STRINGS), "Texts that end the answer."),
    honoured(
        "temperature",
        Kind::Number(0.0, 1.0),
        "0 is greedy. Left out: the model's own choice.",
    ),
    honoured("top_p", Kind::Number(0.0, 1.0), "Keep the likeliest tokens up to this probability."),
    honoured("top_k", Kind::Integer(0, UNBOUNDED), "Keep so many likeliest tokens; 0: all."),
    nothing("metadata", Kind::Fields(METADATA), "A name for the user."),
    hint("service_tier", &["\"auto\"", "\"standard_only\""], "there is one tier"),
    refused("container", &[], "the server runs no code"),
    hint("inference_geo", &[], "the server computes where it is"),
    hint("diagnostics", &[], "the reasons of cache misses are in `/metrics`"),
];

const REQUESTS: &str = r#"{"type":"array","minItems":1,"items":{"type":"object",
    "required":["custom_id","params"],"additionalProperties":false,"properties":{
    "custom_id":{"type":"string","pattern":"^[A-Za-z0-9_-]{1,64}$"},"params":{"type":"object"}}}}"#;

/// `POST /v1/messages/batches`.
pub const BATCHES: &[Field] = &[
    required("requests", Kind::Array(REQUESTS), "Requests to `/v1/messages`, without `stream`."),
    nothing("user_profile_id", Kind::Text, "A name for the user."),
];
