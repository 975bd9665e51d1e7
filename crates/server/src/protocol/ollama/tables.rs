//! The fields of Ollama's requests, all of them.

use crate::fields::table::{
    Field, Kind, UNBOUNDED, alias, hint, honoured, nothing, refused, required,
};
use crate::protocol::openai::tables::TOOLS;

const MESSAGES: &str = r#"{"type":"array","items":{"type":"object","required":["role"],
    "additionalProperties":false,"properties":{
    "role":{"enum":["system","user","assistant","tool"]},
    "content":{"type":["string","null"]},"thinking":{"type":["string","null"]},
    "images":{"type":["array","null"],"items":{"type":"string"}},
    "tool_calls":{"type":["array","null"],"items":{"type":"object"}},
    "tool_name":{"type":["string","null"]},"tool_call_id":{"type":["string","null"]}}}}"#;
const STOP: &str = r#"{"anyOf":[{"type":"string","minLength":1},
    {"type":"array","items":{"type":"string","minLength":1}}]}"#;
const FORMAT: &str = r#"{"anyOf":[{"enum":["json",""]},{"type":"object"}]}"#;
const THINK: &str = r#"{"anyOf":[{"type":"boolean"},{"enum":["low","medium","high","max"]}]}"#;
const KEEP_ALIVE: &str = r#"{"type":["number","string"]}"#;
const IMAGES: &str = r#"{"type":"array","items":{"type":"string"}}"#;
const INPUT: &str = r#"{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]}"#;

/// Why what belongs to a model's load is no request's.
const OPERATOR: &str = "who starts the server decides how models are loaded: see `ml help serve`";

/// The object `options`.
pub const OPTIONS: &[Field] = &[
    honoured(
        "temperature",
        Kind::Number(0.0, f64::MAX),
        "0 is greedy. Left out: the model's own choice.",
    ),
    honoured("top_k", Kind::Integer(-1, UNBOUNDED), "Keep so many likeliest tokens; 0 or -1: all."),
    honoured("top_p", Kind::Number(0.0, 1.0), "Keep the likeliest tokens up to this probability."),
    honoured(
        "min_p",
        Kind::Number(0.0, 1.0),
        "Drop tokens less likely than this part of the likeliest.",
    ),
    honoured("seed", Kind::Integer(i64::MIN, UNBOUNDED), "Makes draws repeatable; -1: does not."),
    honoured(
        "num_predict",
        Kind::Integer(-2, UNBOUNDED),
        "The most tokens of the answer; below 0: to the end of the context.",
    ),
    honoured(
        "num_ctx",
        Kind::Integer(1, UNBOUNDED),
        "The most tokens of the prompt with its answer.",
    ),
    honoured("stop", Kind::Schema(STOP), "Texts that end the answer."),
    honoured(
        "repeat_penalty",
        Kind::Number(0.0, f64::MAX),
        "Divides positive logits of tokens in the window; 1 is off.",
    ),
    honoured(
        "repeat_last_n",
        Kind::Integer(-1, UNBOUNDED),
        "The window of the penalties; 0: none of them; -1: the context.",
    ),
    honoured(
        "presence_penalty",
        Kind::Number(-2.0, 2.0),
        "Taken from the logits of tokens in the window.",
    ),
    honoured("frequency_penalty", Kind::Number(-2.0, 2.0), "The same, once for each occurrence."),
    nothing(
        "num_keep",
        Kind::Integer(i64::MIN, UNBOUNDED),
        "Of a context that is shifted; here none is, and all of the prompt is kept.",
    ),
    nothing("use_mmap", Kind::Bool, "How files are read."),
    refused("mirostat", &["0"], "it is not there; take `temperature`, `top_p` and `min_p`"),
    hint("mirostat_tau", &["5"], "`mirostat`, which it belongs to, is not there"),
    hint("mirostat_eta", &["0.1"], "`mirostat`, which it belongs to, is not there"),
    refused("tfs_z", &["1"], "it is not there; take `min_p`"),
    honoured(
        "typical_p",
        Kind::Number(0.0, 1.0),
        "Keep the tokens of typical surprise up to this probability; 1: all.",
    ),
    refused("penalize_newline", &["true"], "penalties are those of all tokens"),
    hint("numa", &["false"], OPERATOR),
    hint("num_batch", &[], OPERATOR),
    hint("num_gpu", &[], OPERATOR),
    hint("main_gpu", &["0"], OPERATOR),
    hint("low_vram", &["false"], OPERATOR),
    hint("f16_kv", &["true"], OPERATOR),
    refused("logits_all", &["false"], OPERATOR),
    refused("vocab_only", &["false"], OPERATOR),
    hint("use_mlock", &["false"], OPERATOR),
    refused("embedding_only", &["false"], OPERATOR),
    alias("max_tokens", "num_predict", Kind::Integer(-2, UNBOUNDED)),
    alias("max_output_tokens", "num_predict", Kind::Integer(-2, UNBOUNDED)),
    alias("max_completion_tokens", "num_predict", Kind::Integer(-2, UNBOUNDED)),
    alias("repetition_penalty", "repeat_penalty", Kind::Number(0.0, f64::MAX)),
    hint("num_thread", &["0"], OPERATOR),
];

const MODEL: Field = required("model", Kind::Text, "The model's name, with or without `:latest`.");
const KEEP: Field = honoured(
    "keep_alive",
    Kind::Schema(KEEP_ALIVE),
    "How long the model stays loaded after the request; 0: it is unloaded, below 0: it stays.",
);

/// Fields that chats and generations share.
pub const GENERATING: &[Field] = &[
    MODEL,
    KEEP,
    honoured("stream", Kind::Bool, "`false`: the whole answer in one object. Left out: lines."),
    honoured("options", Kind::Fields(OPTIONS), "How tokens are drawn."),
    honoured("format", Kind::Schema(FORMAT), "`json`, or a JSON schema that the answer holds to."),
    honoured(
        "think",
        Kind::Schema(THINK),
        "Whether and how much to think, where the model's template knows of it.",
    ),
    honoured("logprobs", Kind::Bool, "Report each token's log probability."),
    honoured(
        "top_logprobs",
        Kind::Integer(0, |limits| limits.top_logprobs as i64),
        "Report so many likeliest tokens at each step; needs `logprobs`.",
    ),
    hint("truncate", &["false"], "a conversation that is too long is refused; shorten it"),
    hint("shift", &["false"], "an answer ends where the context does"),
];

/// `POST /api/chat`, beside [`GENERATING`].
pub const CHAT: &[Field] = &[
    honoured(
        "messages",
        Kind::Array(MESSAGES),
        "The conversation. None: the model is loaded, or unloaded.",
    ),
    honoured("tools", TOOLS, "Functions that the answer may call."),
    honoured(
        "tool_choice",
        Kind::Schema(include_str!("../openai/tool_choice.schema.json")),
        "Extension: whether it must: `none`, `auto`, `required`, or a function's name.",
    ),
];

/// `POST /api/generate`, beside [`GENERATING`].
pub const GENERATE: &[Field] = &[
    honoured("prompt", Kind::Text, "What is asked. None: the model is loaded, or unloaded."),
    honoured("system", Kind::Text, "Instructions before it."),
    honoured("images", Kind::Array(IMAGES), "Pictures, in base64."),
    honoured("raw", Kind::Bool, "Continue the prompt as it is, without the chat template."),
    honoured(
        "suffix",
        Kind::Text,
        "The text behind the answer, for models whose tokenizers have marks to fill in.",
    ),
    refused("template", &["\"\""], "the model's own is used; `raw` goes without"),
    refused("context", &["[]"], "send the conversation to /api/chat"),
    refused("width", &["0"], "pictures are made by /v1/images/generations"),
    refused("height", &["0"], "pictures are made by /v1/images/generations"),
    refused("steps", &["0"], "pictures are made by /v1/images/generations"),
];

const EMBED_OPTIONS: Field = honoured(
    "options",
    Kind::Fields(OPTIONS),
    "`num_ctx` bounds a text's tokens. The others are about drawing tokens, of which there is none.",
);

/// `POST /api/embed`.
pub const EMBED: &[Field] = &[
    MODEL,
    KEEP,
    required("input", Kind::Schema(INPUT), "A text, or several."),
    honoured(
        "truncate",
        Kind::Bool,
        "`false`: a text that is too long is refused. Left out: its end is cut off.",
    ),
    honoured("dimensions", Kind::Integer(1, UNBOUNDED), "How many of a vector's values are kept."),
    EMBED_OPTIONS,
];

/// `POST /api/embeddings`.
pub const EMBEDDINGS: &[Field] =
    &[MODEL, KEEP, required("prompt", Kind::Text, "A text."), EMBED_OPTIONS];

/// `POST /api/show`.
pub const SHOW: &[Field] = &[
    honoured("model", Kind::Text, "The model's name."),
    honoured(
        "name",
        Kind::Text,
        "The same, as older clients call it; beside `model` it says nothing.",
    ),
    hint("verbose", &["false"], "all that is known of a model is told in any case"),
];
