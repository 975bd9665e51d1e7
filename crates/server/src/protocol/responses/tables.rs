//! The fields of requests for responses, all of them.

use crate::fields::table::{Field, Kind, UNBOUNDED, hint, honoured, nothing, refused};
use crate::protocol::openai::foreign::{RETURN_PROGRESS, TIMINGS_PER_TOKEN};
use crate::protocol::openai::tables::{
    MODEL, MODERATION, PARALLEL_TOOL_CALLS, PROMPT_CACHE_OPTIONS, PROMPT_CACHE_RETENTION,
    SERVICE_TIER, STREAM, TEMPERATURE, TOP_P,
};

const REASONING: &str = r#"{"type":"object","additionalProperties":false,"properties":{
    "effort":{"enum":["none","minimal","low","medium","high","xhigh","max",null]},
    "summary":{"enum":["auto","concise","detailed",null]},
    "generate_summary":{"enum":["auto","concise","detailed",null]},
    "context":{"enum":["auto",null]},"mode":{"enum":["standard",null]}}}"#;
const TEXT: &str = r#"{"type":"object","additionalProperties":false,"properties":{
    "verbosity":{"enum":["medium",null]},"format":{"anyOf":[{"type":"null"},
    {"type":"object","required":["type"],"additionalProperties":false,
        "properties":{"type":{"enum":["text","json_object"]}}},
    {"type":"object","required":["type","schema"],"additionalProperties":false,"properties":{
        "type":{"enum":["json_schema"]},"schema":{"type":["object","boolean"]},
        "name":{"type":["string","null"]},"description":{"type":["string","null"]},
        "strict":{"type":["boolean","null"]}}}]}}}"#;
const INCLUDE: &str = r#"{"type":"array","items":{"enum":["reasoning.encrypted_content",
    "message.output_text.logprobs"]}}"#;
const STREAM_OPTIONS: &str = r#"{"type":"object","additionalProperties":false,"properties":
    {"include_obfuscation":{"type":["boolean","null"]}}}"#;

/// Fields that `/v1/responses` and `/v1/responses/input_tokens` share.
pub const CONVERSATION: &[Field] = &[
    MODEL,
    honoured(
        "input",
        Kind::Schema(include_str!("input.schema.json")),
        "Text, or items: messages, calls, their outputs, thoughts.",
    ),
    honoured("instructions", Kind::Text, "Instructions that the conversation begins with."),
    honoured(
        "previous_response_id",
        Kind::Text,
        "The stored response that `input` goes on from, without its instructions.",
    ),
    honoured(
        "tools",
        Kind::Array(include_str!("tools.schema.json")),
        "Functions and custom tools that the answer may call, also in namespaces.",
    ),
    honoured(
        "tool_choice",
        Kind::Schema(include_str!("tool_choice.schema.json")),
        "Whether it must: `none`, `auto`, `required`, a tool, or some of the tools.",
    ),
    PARALLEL_TOOL_CALLS,
    honoured(
        "reasoning",
        Kind::Object(REASONING),
        "`effort`, where the model's template knows of it; `summary`: thoughts are told as one.",
    ),
    honoured("text", Kind::Object(TEXT), "`format`: text, JSON, or JSON of a schema."),
    refused("conversation", &[], "conversations are not kept; use `previous_response_id`"),
    hint(
        "truncation",
        &["\"disabled\""],
        "a conversation is taken as it is, and one that is too long is refused",
    ),
];

/// `POST /v1/responses`, beside [`CONVERSATION`].
pub const CREATE: &[Field] = &[
    honoured(
        "max_output_tokens",
        Kind::Integer(1, UNBOUNDED),
        "The most tokens of the answer, thoughts included. Left out: to the end of the context.",
    ),
    TEMPERATURE,
    TOP_P,
    STREAM,
    honoured(
        "stream_options",
        Kind::Object(STREAM_OPTIONS),
        "`include_obfuscation`: events are sent as they are in any case.",
    ),
    honoured(
        "include",
        Kind::Array(INCLUDE),
        "`message.output_text.logprobs`: log probabilities; `reasoning.encrypted_content`: thoughts to send back.",
    ),
    honoured(
        "top_logprobs",
        Kind::Integer(0, |limits| limits.top_logprobs as i64),
        "Report so many likeliest tokens; needs `include` with `message.output_text.logprobs`.",
    ),
    honoured(
        "store",
        Kind::Bool,
        "`false`: the response is not kept. Left out: it is, where the server keeps any.",
    ),
    honoured("metadata", Kind::Labels, "Labels of the response, which it tells again."),
    honoured("user", Kind::Text, "A name for the user, which the response tells again."),
    honoured(
        "safety_identifier",
        Kind::Text,
        "A name for the user, which the response tells again.",
    ),
    honoured(
        "prompt_cache_key",
        Kind::Text,
        "A name for the prompt, which the response tells again; the cache finds it by its tokens.",
    ),
    nothing(
        "max_tool_calls",
        Kind::Integer(1, UNBOUNDED),
        "The most calls of the server's own tools, of which there are none.",
    ),
    RETURN_PROGRESS,
    TIMINGS_PER_TOKEN,
    nothing("client_metadata", Kind::Labels, "Extension: what a client notes for itself."),
    refused("background", &["false"], "a response is made while its client waits"),
    hint("background_options", &[], "a response is made while its client waits"),
    refused("context_management", &["[]"], "conversations are taken as they are"),
    refused("prompt", &[], "the server keeps no prompts; send `instructions` and `input`"),
    SERVICE_TIER,
    PROMPT_CACHE_OPTIONS,
    PROMPT_CACHE_RETENTION,
    MODERATION,
    refused("access_programs", &[], "there are no programs of access"),
    refused("image", &[], "the context's images are taken as they are"),
];

/// `POST /v1/responses/input_tokens`, beside [`CONVERSATION`].
pub const COUNT: &[Field] =
    &[refused("personality", &[], "the model has no setting for it; use `instructions`")];
