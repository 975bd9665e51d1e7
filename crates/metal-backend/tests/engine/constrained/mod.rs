//! Constrained requests through the contract: with a model that knows JSON and with one that knows
//! nothing.

mod beside;
mod reasoning;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use inference_core::{
    Constraint, Error, FinishReason, GenerateOptions, LoadOptions, Prompt, TextModel, Token, Value,
};
use serde_json::{Value as Json, json};

use crate::tiny::{self, Checkpoint, Tensor};

/// Rows of the output layer; the tokenizer has 994 tokens.
const ROWS: usize = 1024;

static DEMO: LazyLock<Box<dyn TextModel>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/demo-model");
    tiny::load(&folder, &LoadOptions::default()).unwrap()
});

/// Draws any token as likely as any other, about.
static RANDOM: LazyLock<Box<dyn TextModel>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../inference-text/tests/fixtures/tokenizers/qwen");
    let file = |name| fs::read(folder.join(name)).unwrap();
    Checkpoint::qwen3()
        .config("vocab_size", json!(ROWS))
        .config("eos_token_id", json!(982))
        .tensor("model.embed_tokens.weight", Tensor::noise("embed", &[ROWS, 8]))
        .file("tokenizer.json", file("tokenizer.json"))
        .file("tokenizer_config.json", file("tokenizer_config.json"))
        .model()
});

fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => Value::Int(number.as_i64().unwrap()),
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => Value::Array(items.iter().map(value).collect()),
        Json::Object(fields) => {
            Value::Object(fields.iter().map(|(key, field)| (key.clone(), value(field))).collect())
        }
    }
}

fn person() -> Json {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
            "city": {"enum": ["Oslo", "Bergen", "Zürich"]},
        },
        "required": ["name", "age", "city"],
        "additionalProperties": false,
    })
}

fn schema(schema: &Json) -> GenerateOptions {
    constrained(Constraint::JsonSchema(value(schema)))
}

fn regex(regex: &str) -> GenerateOptions {
    constrained(Constraint::Regex(regex.into()))
}

fn constrained(constraint: Constraint) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(200),
        temperature: Some(0.0),
        constraint: Some(constraint),
        ..Default::default()
    }
}

fn drawn(options: GenerateOptions, temperature: f32, seed: u64) -> GenerateOptions {
    GenerateOptions { temperature: Some(temperature), seed: Some(seed), ..options }
}

/// The tokens, their text and why they end.
fn generate(
    model: &dyn TextModel,
    options: &GenerateOptions,
) -> (Vec<Token>, String, FinishReason) {
    let mut generation = model.generate(&Prompt::from("Mara is 31 and"), options).unwrap();
    let tokens: Vec<Token> = generation.by_ref().map(|token| token.unwrap()).collect();
    let text = tokens.iter().map(|token| token.text.as_str()).collect();
    (tokens, text, generation.outcome().unwrap().finish_reason.clone())
}

#[test]
fn every_answer_of_any_model_is_valid() {
    let schema_json = person();
    let validator = jsonschema::validator_for(&schema_json).unwrap();
    for model in [&*DEMO, &*RANDOM] {
        let greedy = [schema(&schema_json)].into_iter();
        let draws = (1..=8).flat_map(|seed| {
            [1.0, 2.0].map(|temperature| drawn(schema(&person()), temperature, seed))
        });
        for options in greedy.chain(draws) {
            let (_, text, reason) = generate(model.as_ref(), &options);
            assert!(matches!(reason, FinishReason::EndOfSequence(_)), "{text}: {reason:?}");
            let answer: Json = serde_json::from_str(&text).unwrap();
            assert!(validator.is_valid(&answer), "{text}");
        }
    }
}

#[test]
fn an_end_waits_for_the_fewest_tokens_where_something_else_may_come() {
    for model in [&*DEMO, &*RANDOM] {
        let of = |form: &str, min_tokens| {
            let options = GenerateOptions { min_tokens, ..regex(form) };
            generate(model.as_ref(), &options)
        };
        let (tokens, text, _) = of("[a-z]{0,40}", 6);
        assert!(tokens.len() >= 6 && text.bytes().all(|byte| byte.is_ascii_lowercase()), "{text}");
        let (_, text, reason) = of("yes", 6);
        assert!(text == "yes" && matches!(reason, FinishReason::EndOfSequence(_)), "{text}");
    }
}

#[test]
fn filters_and_penalties_work_on_what_is_allowed() {
    let validator = jsonschema::validator_for(&person()).unwrap();
    let xtc = inference_core::Xtc { probability: 1.0, threshold: 0.05 };
    for seed in 0..4 {
        let options = GenerateOptions {
            top_k: Some(3),
            top_p: Some(0.5),
            min_p: Some(0.2),
            xtc: Some(xtc),
            repetition_penalty: Some(1.3),
            presence_penalty: Some(0.5),
            frequency_penalty: Some(0.5),
            ..drawn(schema(&person()), 1.5, seed)
        };
        let (_, text, _) = generate(RANDOM.as_ref(), &options);
        assert!(validator.is_valid(&serde_json::from_str(&text).unwrap()), "{text}");
    }
}

#[test]
fn a_seed_repeats_a_constrained_text() {
    let text = |seed| generate(RANDOM.as_ref(), &drawn(regex("[a-z ]{1,30}"), 1.0, seed)).1;
    assert_eq!(text(3), text(3));
    assert_ne!(text(3), text(4));
}

#[test]
fn a_constraint_that_the_text_meets_anyway_changes_nothing() {
    let free = GenerateOptions { constraint: None, ..regex("") };
    let anything = constrained(Constraint::Regex("(?s:.*)".into()));
    for options in [free.clone(), drawn(free, 0.7, 9)] {
        let same = GenerateOptions { constraint: anything.constraint.clone(), ..options.clone() };
        let ids = |options| generate(DEMO.as_ref(), options).0.into_iter().map(|token| token.id);
        assert!(ids(&options).eq(ids(&same)));
    }
}

#[test]
fn a_text_that_is_cut_off_says_so() {
    let options = GenerateOptions { max_tokens: Some(3), ..schema(&person()) };
    let (tokens, text, reason) = generate(DEMO.as_ref(), &options);
    assert_eq!((tokens.len(), reason), (3, FinishReason::Length));
    assert!(serde_json::from_str::<Json>(&text).is_err(), "{text}");
    let options = GenerateOptions { max_tokens: Some(0), ..schema(&person()) };
    assert_eq!(generate(DEMO.as_ref(), &options).2, FinishReason::Length);
}

#[test]
fn stop_strings_and_stop_ids_end_a_constrained_text() {
    let options = GenerateOptions { stop: vec!["\"age\"".into()], ..schema(&person()) };
    let (_, text, reason) = generate(DEMO.as_ref(), &options);
    assert_eq!(reason, FinishReason::StopText("\"age\"".into()));
    assert!(text.contains("\"name\"") && !text.contains("age"), "{text}");

    // Where the text may end, a stop id is as good as an end of sequence.
    let stop = 1000;
    let options = GenerateOptions {
        stop_token_ids: vec![stop],
        logit_bias: BTreeMap::from([(stop, 50.0)]),
        ..regex("[a-z]{5}[a-z]*")
    };
    let (_, text, reason) = generate(RANDOM.as_ref(), &options);
    assert_eq!(reason, FinishReason::StopToken(stop));
    assert!(text.len() >= 5, "{text}");
}

#[test]
fn log_probabilities_are_those_before_the_constraint() {
    let options = GenerateOptions { logprobs: true, top_logprobs: 5, ..regex("[0-9]{4}") };
    let free = GenerateOptions { constraint: None, max_tokens: Some(1), ..options.clone() };
    let (tokens, ..) = generate(DEMO.as_ref(), &options);
    let (unconstrained, ..) = generate(DEMO.as_ref(), &free);
    assert_eq!(tokens[0].top_logprobs, unconstrained[0].top_logprobs);
    assert_ne!(tokens[0].id, unconstrained[0].id);
    let logprob = tokens[0].logprob.unwrap();
    assert!(logprob < tokens[0].top_logprobs[0].logprob, "{logprob}");
}

#[test]
fn what_leaves_no_token_is_a_named_error() {
    let prompt = Prompt::from("a");
    let first = generate(RANDOM.as_ref(), &regex("a")).0[0].id;
    let options =
        GenerateOptions { logit_bias: BTreeMap::from([(first, f32::NEG_INFINITY)]), ..regex("a") };
    let mut generation = RANDOM.generate(&prompt, &options).unwrap();
    let error = generation.next().unwrap().unwrap_err();
    assert!(matches!(error, Error::InvalidOption { option: "logit_bias", .. }), "{error}");

    let refused = |options: &GenerateOptions| RANDOM.generate(&prompt, options).unwrap_err();
    let error = refused(&regex("[a-z"));
    assert!(matches!(error, Error::InvalidOption { option: "constraint", .. }), "{error}");
    let error = refused(&GenerateOptions { ignore_eos: true, ..regex("a") });
    assert!(matches!(error, Error::InvalidOption { option: "ignore_eos", .. }), "{error}");
    // The next request is none the worse for it.
    assert_eq!(generate(RANDOM.as_ref(), &regex("a")).1, "a");
}

#[test]
fn a_model_without_an_end_of_sequence_cannot_be_constrained() {
    let model = Checkpoint::qwen3().config("eos_token_id", Json::Null).model();
    let error = model.generate(&Prompt::from("a"), &regex("a")).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { what, .. } if what == "constraint"), "{error}");
    assert!(error.to_string().contains("end-of-sequence"), "{error}");
}
