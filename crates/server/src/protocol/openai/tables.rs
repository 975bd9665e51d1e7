//! The fields of OpenAI's requests, all of them, and this server's own.

use inference_core::{GenerateOptions, ImageRequest};

use crate::fields::table::{
    Field, Kind, UNBOUNDED, alias, hint, honoured, nothing, refused, required,
};
use crate::protocol::llama_server::tables::TEXTS;

const STOP: &str = r#"{"anyOf":[{"type":"string","minLength":1},
    {"type":"array","items":{"type":"string","minLength":1}}]}"#;
pub const PROMPTS: &str = r#"{"anyOf":[{"type":"string"},
    {"type":"array","minItems":1,"items":{"type":"integer","minimum":0,"maximum":4294967295}},
    {"type":"array","minItems":1,"items":{"anyOf":[{"type":"string"},
        {"type":"array","minItems":1,"items":{"type":"integer","minimum":0,"maximum":4294967295}}]}}]}"#;
pub const IDS: &str =
    r#"{"type":"array","items":{"type":"integer","minimum":0,"maximum":4294967295}}"#;
const BIAS: &str = r#"{"anyOf":[{"type":"object","propertyNames":{"pattern":"^(0|[1-9][0-9]{0,9})$"},
    "additionalProperties":{"type":"number","minimum":-100,"maximum":100}},
    {"type":"array","items":{"type":"array","minItems":2,"maxItems":2}}]}"#;
pub const VARIABLES: &str = r#"{"type":"object","propertyNames":
    {"not":{"enum":["messages","tools","add_generation_prompt","chat_template"]}}}"#;
const STREAM_OPTIONS: &str = r#"{"type":"object","additionalProperties":false,"properties":
    {"include_usage":{"type":"boolean"},"continuous_usage_stats":{"type":"boolean"},
    "include_obfuscation":{"type":"boolean"}}}"#;

/// The model that answers.
pub const MODEL: Field =
    honoured("model", Kind::Text, "The model's name. Left out: the only one that the server has.");

/// How bold draws are.
pub const TEMPERATURE: Field = honoured(
    "temperature",
    Kind::Number(0.0, 2.0),
    "0 is greedy. Left out: the model's own choice.",
);

/// The probability that draws are among.
pub const TOP_P: Field =
    honoured("top_p", Kind::Number(0.0, 1.0), "Keep the likeliest tokens up to this probability.");

/// The field `stream`: the answer comes as it is made.
pub const STREAM: Field = honoured("stream", Kind::Bool, "Answer in server-sent events.");

/// The field `parallel_tool_calls`: an answer may have several calls.
pub const PARALLEL_TOOL_CALLS: Field =
    honoured("parallel_tool_calls", Kind::Bool, "`false`: at most one call in an answer.");

/// How prompts would be cached.
pub const PROMPT_CACHE_OPTIONS: Field = hint(
    "prompt_cache_options",
    &[],
    "every prompt is cached as far as `--prefix-cache` has room, and for no set time",
);

/// How long prompts would be cached.
pub const PROMPT_CACHE_RETENTION: Field = hint(
    "prompt_cache_retention",
    &["\"in_memory\"", "\"in-memory\""],
    "prompts are cached in memory alone",
);

/// How soon a request would be served.
pub const SERVICE_TIER: Field =
    hint("service_tier", &["\"auto\"", "\"default\""], "there is one tier");

/// The field `moderation`, which is refused.
pub const MODERATION: Field = refused("moderation", &[], "the server does not moderate");

/// How tokens are drawn, for chats and completions.
pub const SAMPLING: &[Field] = &[
    MODEL,
    TEMPERATURE,
    TOP_P,
    honoured("n", Kind::Integer(1, |limits| limits.choices as i64), "How many answers."),
    STREAM,
    honoured(
        "stream_options",
        Kind::Object(STREAM_OPTIONS),
        "`include_usage`: a last chunk with the usage; `continuous_usage_stats`: each chunk has it.",
    ),
    honoured("stop", Kind::Schema(STOP), "Texts that end an answer and are not part of it."),
    honoured(
        "seed",
        Kind::Integer(i64::MIN, UNBOUNDED),
        "Makes draws repeatable; answer i draws with seed + i. -1: a seed of its own.",
    ),
    honoured(
        "presence_penalty",
        Kind::Number(-2.0, 2.0),
        "Taken from the logits of tokens in the window.",
    ),
    honoured("frequency_penalty", Kind::Number(-2.0, 2.0), "The same, once for each occurrence."),
    honoured(
        "logit_bias",
        Kind::Schema(BIAS),
        "Added to the logits of token ids, from -100 (never) to 100. Extension: pairs of both, where `false` is never.",
    ),
    honoured(
        "top_k",
        Kind::Integer(-1, UNBOUNDED),
        "Extension: keep so many likeliest tokens; 0 or -1: all.",
    ),
    honoured(
        "min_p",
        Kind::Number(0.0, 1.0),
        "Extension: drop tokens less likely than this fraction of the likeliest.",
    ),
    honoured(
        "xtc_probability",
        Kind::Number(0.0, 1.0),
        "Extension: how often top choices are excluded.",
    ),
    honoured(
        "xtc_threshold",
        Kind::Number(0.0, 0.5),
        "Extension: from which probability a token is a top choice.",
    ),
    honoured(
        "repetition_penalty",
        Kind::Number(0.0, f64::MAX),
        "Extension: divides positive logits of tokens in the window; 1 is off.",
    ),
    honoured(
        "penalty_window",
        Kind::Integer(1, UNBOUNDED),
        "Extension: how many last tokens the penalties see; left out: 20, or the whole answer. Needs a penalty.",
    ),
    honoured(
        "penalty_scope",
        Kind::OneOf(&["context", "generated"]),
        "Extension: which tokens the penalties see: prompt and answer, or the answer alone. Needs a penalty.",
    ),
    honoured(
        "draft_tokens",
        Kind::Integer(0, |_| GenerateOptions::MAX_DRAFT_TOKENS as i64),
        "Extension: propose up to so many next tokens from earlier ones, verified in one pass; 0: off.",
    ),
    honoured("ignore_eos", Kind::Bool, "Extension: generate on past the model's own end."),
    honoured(
        "min_tokens",
        Kind::Integer(0, UNBOUNDED),
        "Extension: until so many tokens, no end and no stop text counts.",
    ),
    honoured("stop_token_ids", Kind::Array(IDS), "Extension: token ids that end an answer."),
    honoured(
        "skip_special_tokens",
        Kind::Bool,
        "Extension: `false` lets the text show special tokens.",
    ),
    honoured("regex", Kind::Text, "Extension: the text must match this regular expression."),
    honoured(
        "grammar",
        Kind::Text,
        "Extension: the text must conform to this grammar, in Lark or in llama.cpp's GBNF.",
    ),
    nothing("user", Kind::Text, "A name for the user."),
];

/// A conversation, message by message.
pub const MESSAGES: Kind = Kind::Array(include_str!("messages.schema.json"));

/// The functions that an answer may call.
pub const TOOLS: Kind = Kind::Array(include_str!("tools.schema.json"));

/// `POST /v1/chat/completions`, beside [`SAMPLING`].
pub const CHAT: &[Field] = &[
    required("messages", MESSAGES, "The conversation."),
    honoured(
        "max_completion_tokens",
        Kind::Integer(-1, UNBOUNDED),
        "The most tokens of an answer. Left out, or -1: to the end of the context.",
    ),
    honoured(
        "max_tokens",
        Kind::Integer(-1, UNBOUNDED),
        "The older name of `max_completion_tokens`.",
    ),
    honoured("logprobs", Kind::Bool, "Report each token's log probability."),
    honoured(
        "top_logprobs",
        Kind::Integer(0, |limits| limits.top_logprobs as i64),
        "Report so many likeliest tokens at each step; needs `logprobs`.",
    ),
    honoured(
        "response_format",
        Kind::Object(include_str!("response_format.schema.json")),
        "`text`, `json_object` (which may have a schema), or `json_schema` with a schema.",
    ),
    honoured("tools", TOOLS, "Functions that the answer may call."),
    honoured(
        "tool_choice",
        Kind::Schema(include_str!("tool_choice.schema.json")),
        "Whether it must: `none`, `auto`, `required`, or a function's name.",
    ),
    PARALLEL_TOOL_CALLS,
    honoured(
        "reasoning_effort",
        Kind::OneOf(&["none", "minimal", "low", "medium", "high", "xhigh", "max"]),
        "How much to think, where the model's template knows of it.",
    ),
    honoured(
        "chat_template_kwargs",
        Kind::Object(VARIABLES),
        "Extension: further variables of the chat template.",
    ),
    honoured(
        "add_generation_prompt",
        Kind::Bool,
        "Extension: `false` ends the prompt after the last message.",
    ),
    nothing("safety_identifier", Kind::Text, "A name for the user."),
    nothing(
        "prompt_cache_key",
        Kind::Text,
        "A hint where to look for a cached prompt; the cache finds it by its tokens.",
    ),
    nothing("metadata", Kind::Labels, "Labels of a stored answer."),
    PROMPT_CACHE_OPTIONS,
    PROMPT_CACHE_RETENTION,
    hint("store", &["false"], "chats are not stored; `/v1/responses` are"),
    SERVICE_TIER,
    refused("modalities", &["[\"text\"]"], "answers are text"),
    refused("audio", &[], "answers are text"),
    hint("prediction", &[], "a predicted output makes no answer faster here"),
    refused(
        "verbosity",
        &["\"medium\""],
        "the model has no setting for it; ask for it in a message",
    ),
    hint("web_search_options", &[], "the server does not search the web"),
    MODERATION,
    refused("functions", &["[]"], "it is OpenAI's older form; use `tools`"),
    refused("function_call", &["\"none\""], "it is OpenAI's older form; use `tool_choice`"),
];

/// `POST /v1/completions`, beside [`SAMPLING`].
pub const COMPLETIONS: &[Field] = &[
    required("prompt", Kind::Schema(PROMPTS), "Text, token ids, or an array of either."),
    honoured(
        "max_tokens",
        Kind::Integer(-1, UNBOUNDED),
        "The most tokens of an answer; left out: 16, as OpenAI has it; -1: to the end of the context.",
    ),
    honoured(
        "logprobs",
        Kind::Integer(0, |limits| limits.top_logprobs as i64),
        "Report each token's log probability, and so many likeliest tokens.",
    ),
    honoured(
        "echo",
        Kind::Bool,
        "Begin each answer with its prompt; with `logprobs`, also with its tokens' log probabilities.",
    ),
    honoured(
        "best_of",
        Kind::Integer(1, |limits| limits.choices as i64),
        "Generate so many and answer with the `n` likeliest.",
    ),
    honoured(
        "suffix",
        Kind::Text,
        "The text behind the answer, for models whose tokenizers have marks to fill in.",
    ),
    refused("add_special_tokens", &["true"], "a text begins as the model's tokenizer has it"),
];

/// The field `truncate`: the end at which long texts are cut, if they are.
pub const TRUNCATE: Field = honoured(
    "truncate",
    Kind::OneOf(&["none", "end", "start"]),
    "What a text with too many tokens loses. Left out: `none`, it is refused.",
);

/// `POST /v1/embeddings`.
pub const EMBEDDINGS: &[Field] = &[
    honoured("model", Kind::Text, "The embedding model's name. Left out: the served one."),
    honoured("input", Kind::Schema(TEXTS), "Texts, their token ids, or objects with texts."),
    alias("content", "input", Kind::Schema(TEXTS)),
    honoured("encoding_format", Kind::OneOf(&["float", "base64"]), "How vectors are written."),
    honoured("dimensions", Kind::Integer(1, UNBOUNDED), "How many of a vector's values are kept."),
    honoured("prompt_name", Kind::Text, "The model's prompt that is put before each text."),
    honoured("prompt", Kind::Text, "A text that is put before each text."),
    honoured("normalize", Kind::Bool, "Whether vectors have the length 1."),
    honoured(
        "embd_normalize",
        Kind::Integer(-1, UNBOUNDED),
        "llama.cpp's name of it: 2 for the length 1, -1 for their own.",
    ),
    TRUNCATE,
    nothing("user", Kind::Text, "A name for the user."),
];

/// `POST /v1/images/generations`, and what edits share with it.
pub const IMAGES: &[Field] = &[
    honoured("model", Kind::Text, "The image model's name. Left out: the served one."),
    required("prompt", Kind::Text, "What is to be seen."),
    honoured(
        "n",
        Kind::Integer(1, |limits| limits.choices as i64),
        "How many pictures; their seeds follow each other.",
    ),
    honoured("size", Kind::Text, "`WIDTHxHEIGHT` or `auto`."),
    honoured("response_format", Kind::OneOf(&["b64_json"]), "How pictures are sent."),
    honoured("output_format", Kind::OneOf(&["png"]), "The kind of file."),
    honoured("negative_prompt", Kind::Text, "What is not to be seen."),
    honoured("steps", Kind::Integer(1, |_| 1000), "Denoising steps."),
    honoured("guidance", Kind::Number(0.0, 1000.0), "How far to lead away from that."),
    honoured(
        "guidance_normalization",
        Kind::Number(0.0, 1000.0),
        "The most that guidance lengthens a prediction, as a factor.",
    ),
    honoured("guidance_truncation", Kind::Number(0.0, 1.0), "The part of the way that is guided."),
    honoured("seed", Kind::Integer(0, UNBOUNDED), "The seed of the first picture's noise."),
    refused("quality", &["\"auto\""], "pictures have one quality; `steps` decides about it"),
    refused("background", &["\"auto\"", "\"opaque\""], "pictures are opaque"),
    refused("output_compression", &["100"], "a PNG loses nothing"),
    refused("style", &[], "say it in the prompt"),
    refused("moderation", &["\"auto\"", "\"low\""], "there is none here"),
    honoured("stream", Kind::Bool, "Send each picture as an event when it is done."),
    honoured(
        "partial_images",
        Kind::Integer(0, |_| ImageRequest::MAX_PARTIAL_IMAGES as i64),
        "With `stream`: how many pictures to send on the way to each.",
    ),
    nothing("user", Kind::Text, "A name for the user."),
];

/// `POST /v1/audio/translations`, and what transcriptions share with it.
pub const SPEECH: &[Field] = &[
    honoured("model", Kind::Text, "The model's name. Left out: the only one that transcribes."),
    required("file", Kind::Text, "The sound: a file of the form, or a data URL in JSON."),
    honoured("prompt", Kind::Text, "Words that may occur, or the text before: style follows it."),
    honoured(
        "response_format",
        Kind::OneOf(&["json", "text", "srt", "verbose_json", "vtt"]),
        "How the text is written.",
    ),
    honoured(
        "temperature",
        Kind::Number(0.0, 1.0),
        "0 or left out: the most probable token, without a second try.",
    ),
    honoured("seed", Kind::Integer(0, UNBOUNDED), "Extension: makes draws repeatable."),
    honoured(
        "temperature_fallback",
        Kind::Bool,
        "Extension: hear a window again, with higher temperatures, where its text repeats itself or is guessed.",
    ),
    honoured(
        "condition_on_previous_text",
        Kind::Bool,
        "Extension: later windows follow the text of earlier ones.",
    ),
    nothing("user", Kind::Text, "A name for the user."),
];

/// `POST /v1/audio/transcriptions`, beside [`SPEECH`].
pub const TRANSCRIPTIONS: &[Field] = &[
    honoured("language", Kind::Text, "A code such as `de`, or an English name. Left out: found."),
    honoured(
        "timestamp_granularities",
        Kind::Array(r#"{"type":"array","items":{"enum":["segment","word"]}}"#),
        "With `verbose_json`: the times that are stated.",
    ),
    honoured("stream", Kind::Bool, "Send each segment as an event when it is heard."),
    refused(
        "include",
        &["[]"],
        "log probabilities of tokens are not told; `verbose_json` has those of segments",
    ),
    hint("chunking_strategy", &["\"auto\""], "sound is heard in the model's own windows"),
    refused("known_speaker_names", &[], "speakers are not told apart"),
    refused("known_speaker_references", &[], "speakers are not told apart"),
];

/// `POST /v1/audio/speech`.
pub const SPEAKING: &[Field] = &[
    honoured("model", Kind::Text, "The model's name. Left out: the only one that speaks."),
    required("input", Kind::Text, "The text to say."),
    honoured("voice", Kind::Text, "A voice of the model. Left out: its usual one."),
    honoured(
        "response_format",
        Kind::OneOf(&["wav", "pcm"]),
        "The form of the sound: of 16 bits, one channel. Left out: wav.",
    ),
    honoured("speed", Kind::Number(0.25, 4.0), "How fast it is said; 1 is as the voice speaks."),
    honoured("stream_format", Kind::OneOf(&["audio", "sse"]), "Bytes of sound, or events."),
    honoured("seed", Kind::Integer(0, UNBOUNDED), "Extension: of the noise in the voice."),
    honoured("phonemes", Kind::Bool, "Extension: `input` is phonemes in the model's symbols."),
    refused("instructions", &["\"\""], "the voice speaks as it does; take another one"),
    nothing("user", Kind::Text, "A name for the user."),
];

/// `POST /v1/images/edits`, beside [`IMAGES`].
pub const IMAGE_EDITS: &[Field] = &[
    honoured("image", Kind::Schema("{}"), "A picture as a data URL, or several."),
    honoured("images", Kind::Schema("{}"), "Objects that have data URLs as `image_url`."),
    refused("mask", &[], "the whole picture is edited; say in the prompt where"),
    refused("input_fidelity", &["\"high\""], "pictures are always followed closely"),
];
