//! The fields of Google's requests, all of them.

use crate::fields::table::{Field, Kind, UNBOUNDED, hint, honoured, refused, required};

const CONTENT: &str = r#"{"anyOf":[{"type":"object","required":["parts"],"properties":{
    "role":{"type":"string"},
    "parts":{"anyOf":[{"type":"object"},{"type":"array","items":{"type":"object"}}]}}}]}"#;
const CONTENTS: &str = r#"{"anyOf":[{"type":"object"},{"type":"array","minItems":1,
    "items":{"type":"object","required":["parts"],"properties":{
    "role":{"enum":["user","model","function"]},
    "parts":{"anyOf":[{"type":"object"},{"type":"array","items":{"type":"object"}}]}}}}]}"#;
const TOOLS: &str = r#"{"anyOf":[{"type":"object"},{"type":"array","items":{"type":"object"}}]}"#;
const TOOL_CONFIG: &str = r#"{"type":"object","properties":{"functionCallingConfig":{"type":"object",
    "properties":{"mode":{"enum":["MODE_UNSPECIFIED","AUTO","ANY","NONE","VALIDATED"]},
    "allowedFunctionNames":{"type":"array","items":{"type":"string"}}}}}}"#;
const STOPS: &str = r#"{"type":"array","items":{"type":"string"}}"#;
const THINKING: &str = r#"{"type":"object","properties":{"includeThoughts":{"type":"boolean"},
    "thinkingBudget":{"type":"integer","minimum":-1},"thinkingLevel":{"type":"string"}}}"#;

/// Reasons that several fields have.
const NO_SPEECH: &str = "the model answers in text";

/// The fields of `generationConfig`.
pub const GENERATION: &[Field] = &[
    honoured("temperature", Kind::Number(0.0, 2.0), "0 is greedy. Left out: the model's own."),
    honoured("topP", Kind::Number(0.0, 1.0), "Keep the likeliest tokens up to this probability."),
    honoured("topK", Kind::Integer(0, UNBOUNDED), "Keep so many likeliest tokens; 0: all."),
    honoured("maxOutputTokens", Kind::Integer(1, UNBOUNDED), "The most tokens of the answer."),
    honoured("stopSequences", Kind::Array(STOPS), "Texts that end the answer."),
    honoured("seed", Kind::Integer(i64::MIN, UNBOUNDED), "Makes draws repeatable."),
    honoured("presencePenalty", Kind::Number(-2.0, 2.0), "Taken from logits of earlier tokens."),
    honoured("frequencyPenalty", Kind::Number(-2.0, 2.0), "The same, once for each occurrence."),
    honoured(
        "responseMimeType",
        Kind::OneOf(&["text/plain", "application/json", "text/x.enum"]),
        "Text, JSON, or one of the texts of a schema's `enum`.",
    ),
    honoured("responseSchema", Kind::Object("{\"type\":\"object\"}"), "A schema of the answer."),
    honoured(
        "responseJsonSchema",
        Kind::Schema("{\"type\":\"object\"}"),
        "A JSON schema of the answer.",
    ),
    honoured("responseLogprobs", Kind::Bool, "Report each token's log probability."),
    honoured(
        "logprobs",
        Kind::Integer(0, |limits| limits.top_logprobs as i64),
        "Report so many likeliest tokens at each step; needs `responseLogprobs`.",
    ),
    honoured(
        "thinkingConfig",
        Kind::Object(THINKING),
        "How much to think, and whether thoughts are told.",
    ),
    refused("candidateCount", &["1"], "send the request again, with another `seed`"),
    refused("responseModalities", &["[]", "[\"TEXT\"]", "[\"text\"]"], NO_SPEECH),
    refused("speechConfig", &["{}"], NO_SPEECH),
    refused("imageConfig", &["{}"], NO_SPEECH),
    refused("responseFormat", &["[]"], "give `responseMimeType` with `responseSchema`"),
    refused("translationConfig", &["{}"], "say in the text to which language to translate"),
    refused(
        "audioTranscriptionConfig",
        &["{}"],
        "speech is written down by /v1/audio/transcriptions",
    ),
    refused("audioTimestamp", &["false"], "the model is not told times of a sound"),
    refused(
        "mediaResolution",
        &["\"MEDIA_RESOLUTION_UNSPECIFIED\"", "\"MEDIA_RESOLUTION_HIGH\""],
        "pictures are shown at the model's own resolution; scale them down, and leave it out",
    ),
    hint("enableEnhancedCivicAnswers", &["false"], "there are none"),
    hint("enableAffectiveDialog", &["false"], "there is no sound"),
    hint("routingConfig", &["{}"], "the model of the address answers"),
    hint("modelSelectionConfig", &["{}"], "the model of the address answers"),
];

/// Fields that answers and counts share.
pub const CONVERSATION: &[Field] = &[
    honoured("model", Kind::Text, "The model of the address again."),
    honoured("systemInstruction", Kind::Schema(CONTENT), "Instructions before the conversation."),
    honoured("tools", Kind::Schema(TOOLS), "Functions that the answer may call."),
    honoured("toolConfig", Kind::Object(TOOL_CONFIG), "Whether it must, and which."),
    honoured("generationConfig", Kind::Fields(GENERATION), "How the answer is made."),
    hint("safetySettings", &["[]"], "the server judges no texts"),
    hint("labels", &["{}"], "nobody is billed"),
    hint("serviceTier", &[], "there is one tier"),
    hint("store", &["false"], "nothing is stored"),
    refused(
        "cachedContent",
        &["\"\""],
        "conversations are not kept; send the whole of it, the cache finds it by its tokens",
    ),
];

/// Answers, beside [`CONVERSATION`].
pub const CREATE: &[Field] = &[required("contents", Kind::Schema(CONTENTS), "The conversation.")];

/// Counts of tokens, beside [`CONVERSATION`].
pub const COUNT: &[Field] = &[
    honoured("contents", Kind::Schema(CONTENTS), "The conversation."),
    honoured(
        "generateContentRequest",
        Kind::Object("{\"type\":\"object\"}"),
        "A whole request whose conversation is counted, in the place of all other fields.",
    ),
];
