//! Fields that clients of other servers with OpenAI's interface send: llama.cpp, vLLM, LM Studio,
//! OpenRouter and others. What is the same as a field of ours is another name of it.

use crate::fields::table::{Field, Kind, UNBOUNDED, alias, hint, honoured, refused};

const GUIDE: &str = r#"{"type":["object","boolean","string"]}"#;
const CHOICES: &str = r#"{"type":"array","minItems":1,"items":{"type":"string"}}"#;
const STRUCTURED: &str = r#"{"type":"object","additionalProperties":false,"properties":{
    "json":{"type":["object","boolean","string","null"]},"regex":{"type":["string","null"]},
    "choice":{"type":["array","null"],"items":{"type":"string"}},
    "grammar":{"type":["string","null"]},"json_object":{"type":["boolean","null"]},
    "disable_fallback":{"type":["boolean","null"]},
    "disable_any_whitespace":{"enum":[false,null]},
    "disable_additional_properties":{"type":["boolean","null"]},
    "whitespace_pattern":{"type":"null"},"structural_tag":{"type":"null"}}}"#;

/// The reason why a field about drawing tokens is refused where it has an effect.
const DRAWS: &str =
    "it is not there; take `temperature`, `top_p`, `min_p`, `typical_p` or `top_n_sigma`";
/// The reason why a field is a hint that belongs to a sampler which is refused.
const OF_DRAWS: &str = "the sampler that it belongs to is not there";
const CACHE: &str = "every prompt is looked up in the cache by its tokens";
const QUEUE: &str = "requests are answered in the order in which they come";
const LOADED: &str = "who starts the server decides how models are loaded";
const ROUTED: &str = "the server itself answers, and passes requests to no other";
const LABEL: &str = "it is a label for the client's own records";

/// The field `return_progress`: a stream tells how far the prompt is read.
pub const RETURN_PROGRESS: Field = honoured(
    "return_progress",
    Kind::Bool,
    "Extension: a stream tells how far the prompt is read, in `prompt_progress`.",
);

/// The field `timings_per_token`: times are told as llama.cpp tells them.
pub const TIMINGS_PER_TOKEN: Field = honoured(
    "timings_per_token",
    Kind::Bool,
    "Extension: answers and the chunks of a stream have llama.cpp's `timings`.",
);

/// Fields that chats and completions share, beside OpenAI's own.
pub const GENERATING: &[Field] = &[
    // Other names.
    alias("n_predict", "max_tokens", Kind::Integer(-1, UNBOUNDED)),
    alias("max_new_tokens", "max_tokens", Kind::Integer(-1, UNBOUNDED)),
    alias("max_output_tokens", "max_tokens", Kind::Integer(-1, UNBOUNDED)),
    alias("min_new_tokens", "min_tokens", Kind::Integer(0, UNBOUNDED)),
    alias("repeat_penalty", "repetition_penalty", Kind::Number(0.0, f64::MAX)),
    alias("random_seed", "seed", Kind::Integer(i64::MIN, UNBOUNDED)),
    honoured(
        "repeat_last_n",
        Kind::Integer(-1, UNBOUNDED),
        "Extension: the window of the penalties; 0: none of them; -1: the context.",
    ),
    honoured(
        "num_ctx",
        Kind::Integer(1, UNBOUNDED),
        "Extension: the most tokens of the prompt with its answer.",
    ),
    // Structured answers.
    honoured("json_schema", Kind::Schema(GUIDE), "Extension: the answer is JSON of this schema."),
    honoured("guided_json", Kind::Schema(GUIDE), "The same."),
    honoured("guided_regex", Kind::Text, "Another name of `regex`."),
    honoured("guided_grammar", Kind::Text, "Another name of `grammar`."),
    honoured("guided_choice", Kind::Array(CHOICES), "Extension: the answer is one of these texts."),
    honoured(
        "structured_outputs",
        Kind::Object(STRUCTURED),
        "Extension: one of `json`, `regex`, `choice`, `grammar` and `json_object`.",
    ),
    hint("guided_decoding_backend", &[], "there is one that compiles grammars"),
    refused("guided_whitespace_pattern", &[], "JSON has the white space that docs/server.md tells"),
    refused("structural_tag", &[], "use `tools`, or a `grammar`"),
    // Samplers.
    honoured(
        "typical_p",
        Kind::Number(0.0, 1.0),
        "Extension: keep the tokens of typical surprise up to this probability; 1: all.",
    ),
    honoured("typical", Kind::Number(0.0, 1.0), "The same; 0 is off, too."),
    refused("tfs_z", &["1"], DRAWS),
    refused("tfs", &["1"], DRAWS),
    refused("top_a", &["0"], DRAWS),
    honoured(
        "top_n_sigma",
        Kind::Number(-1.0, f64::MAX),
        "Extension: keep the tokens so many standard deviations below the greatest logit; 0 or -1: all.",
    ),
    refused("epsilon_cutoff", &["0"], DRAWS),
    refused("eta_cutoff", &["0"], DRAWS),
    refused("dynatemp_range", &["0"], DRAWS),
    hint("dynatemp_exponent", &[], OF_DRAWS),
    refused("smoothing_factor", &["0"], DRAWS),
    hint("smoothing_curve", &[], OF_DRAWS),
    refused("mirostat", &["0"], DRAWS),
    refused("mirostat_mode", &["0"], DRAWS),
    hint("mirostat_tau", &[], OF_DRAWS),
    hint("mirostat_eta", &[], OF_DRAWS),
    honoured(
        "dry_multiplier",
        Kind::Number(0.0, f64::MAX),
        "Extension: the penalty on going on with what was there before (DRY); 0: off.",
    ),
    honoured("dry_base", Kind::Number(1.0, f64::MAX), "How it grows with each token; 1.75."),
    honoured(
        "dry_allowed_length",
        Kind::Integer(0, UNBOUNDED),
        "Repeats that are shorter cost nothing; 2.",
    ),
    honoured(
        "dry_penalty_last_n",
        Kind::Integer(-1, UNBOUNDED),
        "How many last tokens it sees; 0: off; -1: the context.",
    ),
    honoured(
        "dry_sequence_breakers",
        Kind::Array(r#"{"type":"array","items":{"type":"string","minLength":1}}"#),
        "Texts over which no repeat goes.",
    ),
    refused("min_keep", &["0"], "filters keep one token at least, and no more by themselves"),
    refused("samplers", &[], "their order is fixed, as docs/server.md tells it"),
    refused("guidance_scale", &["1"], "answers are computed once, without a negative prompt"),
    hint("negative_prompt", &[], OF_DRAWS),
    refused("num_beams", &["1"], "there is no beam search"),
    refused("use_beam_search", &["false"], "there is no beam search"),
    refused("length_penalty", &["1"], "there is no beam search"),
    refused("early_stopping", &["false"], "there is no beam search"),
    honoured("do_sample", Kind::Bool, "Extension: `false` is a `temperature` of 0."),
    refused("penalize_nl", &["true"], "penalties are those of all tokens"),
    refused("no_repeat_ngram_size", &["0"], "it is not there; take `repetition_penalty`"),
    refused("min_length", &["0"], "it counts the prompt; take `min_tokens`"),
    refused("bad_words", &["[]"], "forbid token ids by a `logit_bias` of -100"),
    refused("allowed_token_ids", &["[]"], "hold the answer to a `regex` or a `grammar`"),
    refused("include_stop_str_in_output", &["false"], "an answer ends before its stop string"),
    refused("spaces_between_special_tokens", &["true"], "special tokens are shown as they are"),
    refused("truncate_prompt_tokens", &["-1"], "a prompt that is too long is refused"),
    refused("ban_eos_token", &["false"], "use `ignore_eos`"),
    refused("add_bos_token", &["true"], "the model's tokenizer decides about it"),
    refused("prompt_logprobs", &[], "use `echo` with `logprobs` at /v1/completions"),
    refused("return_tokens_as_token_ids", &["false"], "log probabilities tell tokens as texts"),
    refused("return_token_ids", &["false"], "answers are texts; see /tokenize"),
    refused("lora", &["[]"], "an adapter is loaded with its model"),
    refused("logits_processors", &["[]"], "the server runs no code of its clients"),
    refused("mm_processor_kwargs", &["{}"], "pictures are read as the model's own files say"),
    refused("documents", &["[]"], "put them into a message"),
    refused("models", &["[]"], ROUTED),
    refused("transforms", &["[]"], "conversations are taken as they are"),
    refused("plugins", &["[]"], "the server has no plug-ins"),
    refused("safe_prompt", &["false"], "put it into a message"),
    // Hints for an engine.
    hint("cache_prompt", &["true"], CACHE),
    hint("cache_salt", &[], CACHE),
    hint("n_cache_reuse", &["0"], CACHE),
    hint("n_keep", &["0"], "a context is not shifted, and all of the prompt is kept"),
    hint("n_discard", &["0"], "a context is not shifted, and all of the prompt is kept"),
    hint("id_slot", &["-1"], "a request gets the slot that is free"),
    hint("slot_id", &["-1"], "a request gets the slot that is free"),
    hint("priority", &["0"], QUEUE),
    hint("timeout", &[], "a request ends when its client leaves"),
    hint("kv_transfer_params", &[], LOADED),
    hint("num_batch", &[], LOADED),
    hint("num_gpu", &[], LOADED),
    hint("num_thread", &[], LOADED),
    hint("ttl", &[], LOADED),
    hint("keep_alive", &[], LOADED),
    hint("draft_model", &[], LOADED),
    hint("speculative.n_max", &[], "use `draft_tokens`"),
    hint("speculative.n_min", &[], "use `draft_tokens`"),
    hint("speculative.p_min", &[], "use `draft_tokens`"),
    RETURN_PROGRESS,
    TIMINGS_PER_TOKEN,
    refused("parse_tool_calls", &["true"], "calls are told as calls"),
    // Hints of routers, and labels.
    hint("provider", &[], ROUTED),
    hint("route", &[], ROUTED),
    honoured(
        "usage",
        Kind::Object(r#"{"type":"object","properties":{"include":{"type":["boolean","null"]}}}"#),
        "Extension: `include`: a last chunk with the usage.",
    ),
    hint("session_id", &[], LABEL),
    hint("request_id", &[], LABEL),
    hint("trace_id", &[], LABEL),
    hint("trace", &[], LABEL),
    hint("tags", &[], LABEL),
    hint("custom_id", &[], LABEL),
    hint("chat_id", &[], LABEL),
    hint("litellm_metadata", &[], LABEL),
];

/// Fields of llama.cpp's own requests, beside [`GENERATING`] of OpenAI's.
pub const OF_LLAMA: &[Field] = &[
    refused("post_sampling_probs", &["false"], "log probabilities are those before filters"),
    refused("n_probs", &["0"], "use `logprobs`"),
];

const BUDGET: Kind = Kind::Integer(-1, UNBOUNDED);

/// Fields of chats alone, beside OpenAI's own.
pub const CHAT: &[Field] = &[
    honoured("enable_thinking", Kind::Bool, "Extension: whether to think."),
    honoured("reasoning_budget", BUDGET, "Extension: the most tokens of reasoning; -1: no bound."),
    honoured("thinking_budget", BUDGET, "The same."),
    honoured("thinking_token_budget", BUDGET, "The same."),
    honoured(
        "thinking",
        Kind::Object(
            r#"{"type":"object","properties":{"type":{"enum":["enabled","adaptive","auto","disabled"]},
            "budget_tokens":{"type":["integer","null"]}}}"#,
        ),
        "Extension: `type` says whether to think, and `budget_tokens` how many tokens at most.",
    ),
    honoured(
        "reasoning",
        Kind::Object(
            r#"{"type":"object","properties":{"effort":{"type":["string","null"]},
            "enabled":{"type":["boolean","null"]},"max_tokens":{"type":["integer","null"]}}}"#,
        ),
        "Extension: `effort` is another form of `reasoning_effort`; `enabled` says whether to think, and `max_tokens` how many tokens at most.",
    ),
    honoured(
        "continue_final_message",
        Kind::Bool,
        "Extension: the answer goes on with the last message, which is the assistant's.",
    ),
    refused("include_reasoning", &["true"], "thoughts are told in fields of their own"),
    refused(
        "reasoning_format",
        &["\"auto\"", "\"deepseek\""],
        "thoughts are told in fields of their own",
    ),
    refused("reasoning_in_content", &["false"], "thoughts are told in fields of their own"),
    refused("thinking_forced_open", &["false"], "use `enable_thinking`"),
    refused("echo", &["false"], "an answer does not repeat the conversation"),
    refused("add_special_tokens", &["false"], "the chat template writes them"),
    refused("chat_template", &["\"\""], "the model's own is used"),
    refused("best_of", &["1"], "it is a field of /v1/completions"),
    refused("enable_search", &["false"], "the server does not search the web"),
    refused("prompt_mode", &[], "put it into a message"),
];

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value as Json};

    use super::{CHAT, GENERATING, OF_LLAMA};
    use crate::config::Limits;
    use crate::fields::table::{Effect, Field, check};
    use crate::fields::told::telling;
    use crate::protocol::openai::tables::{self, COMPLETIONS, SAMPLING};

    const ENDPOINTS: [(&[&[Field]], &str); 2] = [
        (&[SAMPLING, tables::CHAT, GENERATING, CHAT, OF_LLAMA], r#"{"messages": []}"#),
        (&[SAMPLING, COMPLETIONS, GENERATING, OF_LLAMA], r#"{"prompt": "a"}"#),
    ];

    #[test]
    fn each_name_is_there_once_and_another_name_leads_to_a_field() {
        for (tables, _) in ENDPOINTS {
            let fields: Vec<_> = tables.iter().flat_map(|table| table.iter()).collect();
            for field in &fields {
                let same = fields.iter().filter(|other| other.name == field.name).count();
                assert_eq!(same, 1, "{}", field.name);
                if let Effect::Alias(of) = field.effect {
                    assert!(fields.iter().any(|other| other.name == of), "{}", field.name);
                }
            }
        }
    }

    #[tokio::test]
    async fn neutral_values_pass_untold_and_others_are_told_or_refused() {
        for (tables, base) in ENDPOINTS {
            let with = |name: &str, value: Json| -> Map<String, Json> {
                let mut request: Map<_, _> = serde_json::from_str(base).unwrap();
                request.insert(name.to_owned(), value);
                request
            };
            let limits = Limits::default();
            for field in tables.iter().flat_map(|table| table.iter()) {
                let (Effect::Refused(neutral, _) | Effect::Hint(neutral, _)) = field.effect else {
                    continue;
                };
                for text in neutral {
                    let value: Json = serde_json::from_str(text).unwrap();
                    let passes = async { check(tables, &limits, with(field.name, value)).is_ok() };
                    assert_eq!(telling(false, passes).await, (true, Vec::new()), "{}", field.name);
                }
                let odd = || with(field.name, serde_json::json!([{"?": 1.5}]));
                let passes = async { check(tables, &limits, odd()).is_ok() };
                let (passed, told) = telling(false, passes).await;
                assert_eq!(passed, matches!(field.effect, Effect::Hint(..)), "{}", field.name);
                assert_eq!(told.len(), usize::from(passed), "{}", field.name);
                let passes = async { check(tables, &limits, odd()).is_ok() };
                assert!(!telling(true, passes).await.0, "{}", field.name);
            }
        }
    }
}
