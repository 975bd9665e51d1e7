//! tokenizer.json, tokenizer_config.json, generation_config.json and chat templates.

use inference_core::{ChatOptions, GenerateOptions, LoadOptions, Message};
use serde_json::{Value, json};

use crate::refused;
use crate::tiny::{Checkpoint, tokenizer};

#[test]
fn a_missing_tokenizer_is_named() {
    let mut checkpoint = Checkpoint::qwen3();
    checkpoint.files.remove("tokenizer.json");
    refused(&checkpoint, &["tokenizer.json"]);
}

#[test]
fn every_hundredth_truncation_of_the_tokenizer_is_refused() {
    let whole = tokenizer().to_string();
    for length in (0..whole.len()).step_by(100) {
        refused(&Checkpoint::qwen3().file("tokenizer.json", &whole[..length]), &["tokenizer.json"]);
    }
}

#[test]
fn hostile_tokenizers_are_refused() {
    let deep = format!("{{\"model\":{}", "[".repeat(100_000));
    for text in ["[]", "null", "{}", r#"{"model": {"type": "Spiral"}}"#, &deep, "\u{0}"] {
        refused(&Checkpoint::qwen3().file("tokenizer.json", text), &["tokenizer.json"]);
    }
    let changes: [(&str, Value); 6] = [
        ("model", json!({"type": "BPE", "vocab": {"a": -1}, "merges": []})),
        ("model", json!({"type": "BPE", "vocab": {"a": 1}, "merges": ["x y"]})),
        ("model", json!({"type": "WordLevel", "vocab": [], "unk_token": 3})),
        (
            "pre_tokenizer",
            json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false}),
        ),
        ("added_tokens", json!([{"id": "x"}])),
        ("decoder", json!({"type": "Unheard"})),
    ];
    for (key, value) in changes {
        let mut broken = tokenizer();
        broken[key] = value;
        refused(
            &Checkpoint::qwen3().file("tokenizer.json", broken.to_string()),
            &["tokenizer.json"],
        );
    }
}

#[test]
fn a_tokenizer_that_has_no_line_break_loads() {
    let words = json!({"type": "WordLevel", "vocab": {"a": 2, "b": 3}, "unk_token": "?"});
    let mut other = tokenizer();
    (other["model"], other["pre_tokenizer"]) = (words, Value::Null);
    let model = Checkpoint::qwen3().file("tokenizer.json", other.to_string()).model();
    assert_eq!(model.encode("a").unwrap(), [2]);
    let error = model.encode("c").unwrap_err().to_string();
    assert!(error.contains("UNK"), "{error}");
}

#[test]
fn a_broken_tokenizer_config_is_named() {
    let name = "tokenizer_config.json";
    for text in [
        "{",
        "[]",
        r#"{"chat_template": 3}"#,
        r#"{"chat_template": [{"name": "default"}]}"#,
        r#"{"eos_token": 3}"#,
        r#"{"added_tokens_decoder": []}"#,
        r#"{"added_tokens_decoder": {"x": {}}}"#,
        r#"{"added_tokens_decoder": {"4": 5}}"#,
    ] {
        refused(&Checkpoint::qwen3().file(name, text), &[name]);
    }
}

#[test]
fn a_broken_generation_config_is_named() {
    let name = "generation_config.json";
    for text in [
        "",
        "[]",
        r#"{"eos_token_id": "end"}"#,
        r#"{"do_sample": "yes"}"#,
        r#"{"do_sample": true, "temperature": "hot"}"#,
        r#"{"do_sample": true, "temperature": -1}"#,
        r#"{"do_sample": true, "temperature": 1e300}"#,
        r#"{"do_sample": true, "top_p": 1.5}"#,
        r#"{"do_sample": true, "top_p": -0.5}"#,
        r#"{"do_sample": true, "min_p": 2}"#,
        r#"{"do_sample": true, "top_k": -4}"#,
        r#"{"do_sample": true, "repetition_penalty": 0}"#,
    ] {
        refused(&Checkpoint::qwen3().file(name, text), &[name]);
    }
}

#[test]
fn zero_switches_a_filter_of_the_generation_config_off() {
    let text = r#"{"do_sample": true, "top_k": 0, "min_p": 0.0, "top_p": 1.0}"#;
    let model = Checkpoint::qwen3().file("generation_config.json", text).model();
    let options = GenerateOptions { max_tokens: Some(2), ignore_eos: true, ..Default::default() };
    assert_eq!(model.generate(&"a".into(), &options).unwrap().count(), 2);
}

#[test]
fn ids_of_tokens_without_an_embedding_are_refused() {
    let mut wide = tokenizer();
    for index in 0..20 {
        wide["model"]["vocab"][format!("wide{index}")] = json!(33 + index);
    }
    wide["added_tokens"].as_array_mut().unwrap().push(json!({"id": 55, "content": "<far>",
        "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": true}));
    let model = Checkpoint::qwen3().file("tokenizer.json", wide.to_string()).model();
    let error = model.generate(&"ab<far>".into(), &Default::default()).unwrap_err().to_string();
    assert!(error.contains("token 53") || error.contains("token 55"), "{error}");
    assert!(error.contains("40"), "{error}");
    let error = model.classify(&["<far>".into()], &Default::default()).unwrap_err().to_string();
    assert!(error.contains("not in the vocabulary of 40"), "{error}");
}

#[test]
fn an_end_of_sequence_id_beyond_the_vocabulary_never_ends_anything() {
    let model = Checkpoint::qwen3().config("eos_token_id", json!(u32::MAX)).model();
    let options = GenerateOptions { max_tokens: Some(3), ..Default::default() };
    assert_eq!(model.generate(&"a".into(), &options).unwrap().count(), 3);
}

/// Renders one message with the template `source`.
fn rendered(source: &str) -> Result<String, String> {
    let checkpoint = Checkpoint::qwen3().file("chat_template.jinja", source);
    let model = checkpoint.load(&LoadOptions::default()).map_err(|error| error.to_string())?;
    let messages = [Message::user("hello")];
    let rendered = model.render_chat(&messages, &ChatOptions::default());
    let started = model.chat(&messages, &ChatOptions::default(), &GenerateOptions::default());
    assert_eq!(rendered.is_err(), started.is_err());
    rendered.map(|prompt| prompt.text).map_err(|error| error.to_string())
}

#[test]
fn templates_that_raise_loop_or_grow_are_refused() {
    assert_eq!(rendered("{{ messages[0].content }}").unwrap(), "hello");
    let error = rendered("{{ raise_exception('roles must alternate') }}").unwrap_err();
    assert!(error.contains("roles must alternate"), "{error}");
    let bad = [
        "{% for i in range(100000000) %}{% for j in range(100000000) %}{% endfor %}{% endfor %}",
        "{% for i in range(1000000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 1000 }}{% endfor %}",
        "{{ 'x' * 100000000000 }}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{{ messages[7].content.nothing }}",
        "{{ 1 / 0 }}",
        "{% if %}",
        "{{ unknown_function() }}",
        "{% include '/etc/passwd' %}",
    ];
    for source in bad {
        let error = rendered(source).unwrap_err();
        assert!(error.contains("template"), "{source}: {error}");
    }
}

#[test]
fn an_empty_conversation_is_refused() {
    let model = Checkpoint::qwen3().model();
    let error = model.chat(&[], &ChatOptions::default(), &GenerateOptions::default()).unwrap_err();
    assert!(error.to_string().contains("messages"), "{error}");
}
