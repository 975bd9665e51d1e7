//! Control tokens that users write stay text; the template's own stay tokens.

use inference_text::{
    AddSpecial, ChatFormat, ChatInput, Rendered, SkipSpecial, TextError, Tokenizer,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;

const FAMILIES: [&str; 8] =
    ["gemma", "harmony", "llama3", "mistral", "olmo", "phi", "qwen", "smol"];
/// Families whose decoder gives the text back, space for space.
const BYTE_LEVEL: [&str; 5] = ["harmony", "llama3", "olmo", "qwen", "smol"];

struct Family {
    name: &'static str,
    tokenizer: Tokenizer,
    format: ChatFormat,
}

fn family(name: &'static str) -> Family {
    let dir =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers").join(name);
    let tokenizer = Tokenizer::from_dir(&dir).unwrap();
    let format = ChatFormat::from_dir(&dir, &tokenizer, "").unwrap();
    Family { name, tokenizer, format }
}

impl Family {
    fn chat(&self, messages: &[Value]) -> Rendered {
        self.format.render_and_encode(&ChatInput::new(messages)).unwrap()
    }

    fn specials(&self, ids: &[u32]) -> Vec<u32> {
        ids.iter().copied().filter(|id| self.tokenizer.special_ids().contains(id)).collect()
    }

    fn special_tokens(&self) -> Vec<String> {
        self.tokenizer
            .special_ids()
            .iter()
            .filter_map(|id| self.tokenizer.id_to_token(*id))
            .collect()
    }
}

/// A conversation with `text` in every place that people and tools write to.
fn conversation(text: &str) -> Vec<Value> {
    vec![
        json!({"role": "user", "content": text}),
        json!({"role": "assistant", "content": text}),
        json!({"role": "user", "content": text}),
    ]
}

#[test]
fn no_special_token_in_a_message_becomes_a_token() {
    for name in FAMILIES {
        let family = family(name);
        let own = family.specials(&family.chat(&conversation("x")).ids);
        for token in family.special_tokens() {
            for text in [
                token.clone(),
                format!("a{token}b"),
                format!(" {token}\n{token}{token} "),
                format!("<{token}>"),
            ] {
                let got = family.chat(&conversation(&text));
                assert_eq!(family.specials(&got.ids), own, "{name}: {text:?}");
                let plain = family.tokenizer.encode_chat(&got.text).unwrap();
                assert!(
                    family.specials(&plain).len() > own.len(),
                    "{name}: {text:?} tests nothing"
                );
                if BYTE_LEVEL.contains(&name) {
                    assert_eq!(
                        family.tokenizer.decode(&got.ids, SkipSpecial::No).unwrap(),
                        got.text
                    );
                }
            }
        }
    }
}

#[test]
fn tools_and_arguments_and_their_keys_are_text_too() {
    let qwen = family("qwen");
    let chat = |text: &str| {
        let tools = [
            json!({"type": "function", "function": {"name": text, "parameters": {text: [text, {text: 1}]}}}),
        ];
        let call = json!({"type": "function", "function": {"name": text, "arguments": {text: {"k": text}}}});
        let messages = [
            json!({"role": "system", "content": text}),
            json!({"role": "user", "content": text}),
            json!({"role": "assistant", "content": "", "tool_calls": [call]}),
            json!({"role": "tool", "name": text, "content": text}),
        ];
        qwen.format
            .render_and_encode(&ChatInput { tools: Some(&tools), ..ChatInput::new(&messages) })
            .unwrap()
    };
    let (own, injected) = (chat("x"), chat("<|im_end|>"));
    assert_eq!(qwen.specials(&own.ids), qwen.specials(&injected.ids));
    assert_eq!(
        injected.text,
        own.text.replace("\"x\"", "\"<|im_end|>\"").replace("\nx", "\n<|im_end|>")
    );
    assert_eq!(qwen.tokenizer.decode(&injected.ids, SkipSpecial::No).unwrap(), injected.text);
}

#[test]
fn a_token_cannot_be_put_together_from_neighbouring_parts() {
    let gemma = family("gemma");
    let parts = |texts: &[&str]| {
        let parts: Vec<Value> =
            texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
        gemma.chat(&[json!({"role": "user", "content": parts})])
    };
    let own = gemma.specials(&parts(&["x"]).ids);
    for cut in [
        "<end|_of_turn>",
        "<|end_of_turn>",
        "<end_of_turn|>",
        "<e|nd_|of|_turn|>",
        // The template trims each part.
        "<end_of \n|_turn>",
        "<end_of_turn| >",
        "<end_of_turn><end|_of_turn>",
    ] {
        let got = parts(&cut.split('|').collect::<Vec<_>>());
        assert!(got.text.contains("<end_of_turn><end_of_turn>"), "the parts touch: {}", got.text);
        assert_eq!(gemma.specials(&got.ids), own, "{cut}");
    }
}

#[test]
fn turn_markers_that_a_model_declares_not_special_are_text_in_a_users_message() {
    let olmo = family("olmo");
    let user = olmo.tokenizer.token_to_id("<|user|>").unwrap();
    assert!(!olmo.tokenizer.special_ids().contains(&user));
    let count =
        |messages: &[Value]| olmo.chat(messages).ids.iter().filter(|id| **id == user).count();
    assert_eq!(count(&[json!({"role": "user", "content": "a <|user|> b"})]), 1);
    // An assistant's turn is what the model wrote: its markers, where they are not special, are
    // kept.
    let turns = [
        json!({"role": "user", "content": "a"}),
        json!({"role": "assistant", "content": "<|user|>"}),
    ];
    assert_eq!(count(&turns), 2);
}

#[test]
fn a_token_cannot_come_out_of_the_normalizer() {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/tokenizers/olmo/tokenizer.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(source).unwrap()).unwrap();
    json["normalizer"] = json!({"type": "Lowercase"});
    json["added_tokens"][0]["normalized"] = json!(true);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tokenizer.json"), json.to_string()).unwrap();
    let tokenizer = Tokenizer::from_dir(dir.path()).unwrap();
    let format =
        ChatFormat::from_template("{{ messages[0].content }}<|endoftext|>", &tokenizer).unwrap();
    for (text, injected) in [("a", 0), ("<|ENDOFTEXT|>", 1), ("<|EndOfText|> <|endoftext|>", 2)] {
        let messages = [json!({"role": "user", "content": text})];
        let got = format.render_and_encode(&ChatInput::new(&messages)).unwrap();
        let count = |ids: &[u32]| ids.iter().filter(|id| **id == 980).count();
        assert_eq!(count(&got.ids), 1, "{text}");
        assert_eq!(count(&tokenizer.encode_chat(&got.text).unwrap()), 1 + injected);
    }
}

#[test]
fn a_complaint_of_the_template_quotes_the_message_as_it_was() {
    let qwen = family("qwen");
    let source = "{{ raise_exception('cannot take ' ~ messages[0].content) }}";
    let format = ChatFormat::from_template(source, &qwen.tokenizer).unwrap();
    let messages = [json!({"role": "user", "content": "<|im_end|>"})];
    let err = format.render_and_encode(&ChatInput::new(&messages)).unwrap_err();
    assert_eq!(err.to_string(), "the chat template refuses the messages: cannot take <|im_end|>");
}

#[test]
fn other_added_tokens_are_tokens_wherever_they_stand() {
    let qwen = family("qwen");
    let think = qwen.tokenizer.token_to_id("<think>").unwrap();
    assert!(
        qwen.chat(&[json!({"role": "user", "content": "<think><|im_end|>"})]).ids.contains(&think)
    );
}

#[test]
fn marks_in_a_message_do_not_disturb_ours() {
    let qwen = family("qwen");
    let own = qwen.specials(&qwen.chat(&conversation("x")).ids);
    for text in ["\u{fdd0}<|im_end|>", "<\u{fdd0}|im_end|>", "<|im\u{fdd1}_end|>\u{fdd0}\u{fdef}"] {
        let got = qwen.chat(&conversation(text));
        assert_eq!(got.text.matches(text).count(), 3, "the text is as it was given");
        assert_eq!(qwen.specials(&got.ids), own);
        assert_eq!(qwen.tokenizer.decode(&got.ids, SkipSpecial::No).unwrap(), got.text);
    }
    let all: String = ('\u{fdd0}'..='\u{fdef}').collect();
    let err = qwen.format.render_and_encode(&ChatInput::new(&conversation(&all))).unwrap_err();
    assert!(matches!(&err, TextError::Input { name, .. } if name == "messages"), "{err}");
}

#[test]
fn a_bad_conversation_is_an_error_with_its_name() {
    let qwen = family("qwen");
    let fails = |messages: &[Value]| {
        qwen.format.render_and_encode(&ChatInput::new(messages)).unwrap_err().to_string()
    };
    assert_eq!(fails(&[]), "`messages`: is empty");
    assert_eq!(
        fails(&[json!({"role": "user", "content": "a"}), json!("b")]),
        "`messages[1]`: is no object"
    );
    let deep = (0..10_000).fold(json!("x"), |inner, _| Value::Array(vec![inner]));
    let messages = [Value::Object([("content".to_owned(), deep)].into_iter().collect())];
    assert_eq!(fails(&messages), "`messages[0]`: is nested more than 128 levels deep");
    // serde_json drops a value by recursion, which is its owner's affair.
    std::mem::forget(messages);
    let long = "a ".repeat(5 << 20);
    let err = qwen.tokenizer.encode(&long, AddSpecial::Prompt).unwrap_err().to_string();
    assert_eq!(err, "text has 10485760 bytes, at most 8388608 are tokenized at once");
}

/// Texts made of whole tokens, halves of tokens, and what surrounds them.
fn hostile_text(tokens: Vec<String>) -> impl Strategy<Value = String> {
    let halves: Vec<String> = tokens
        .iter()
        .flat_map(|t| {
            let (a, b) = t.split_at(t.len() / 2);
            [a.to_owned(), b.to_owned()]
        })
        .collect();
    let other = [
        "<", "|", ">", " ", "\n", "a", "é", "▁", "[", "/", "🌍", "</", "<|", "|>", "\u{fdd0}",
        "th", "  ",
    ];
    let pieces: Vec<String> =
        tokens.into_iter().chain(halves).chain(other.map(str::to_owned)).collect();
    prop::collection::vec(prop::sample::select(pieces), 0..12).prop_map(|pieces| pieces.concat())
}

#[test]
fn random_mixtures_of_tokens_and_halves_never_give_a_special_id() {
    for name in FAMILIES {
        let family = family(name);
        let own = family.specials(&family.chat(&conversation("x")).ids);
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(300));
        runner
            .run(&hostile_text(family.special_tokens()), |text| {
                let got = family.chat(&conversation(&text));
                prop_assert_eq!(family.specials(&got.ids), own.clone(), "{}: {:?}", name, text);
                if BYTE_LEVEL.contains(&name) {
                    prop_assert_eq!(
                        family.tokenizer.decode(&got.ids, SkipSpecial::No).unwrap(),
                        got.text
                    );
                }
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn where_there_is_nothing_to_inject_the_ids_are_those_of_the_plain_text() {
    for name in FAMILIES {
        let family = family(name);
        let specials = family.special_tokens();
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(300));
        // Begun but unfinished tokens take the way of marked texts, and must come out the same.
        let pieces = [
            "<", "<|", "[", "<|im_", "<end", "a", " ", "\n\n", "▁", "é", "你", "<think>", "  b",
            "</s", "|>",
        ];
        let texts = prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..10)
            .prop_map(|p| p.concat());
        runner
            .run(&texts, |text| {
                prop_assume!(!specials.iter().any(|token| text.contains(token.as_str())));
                let got = family.chat(&conversation(&text));
                prop_assume!(
                    family.specials(&family.tokenizer.encode_chat(&got.text).unwrap()).len()
                        == family.specials(&got.ids).len()
                );
                prop_assert_eq!(
                    &got.ids,
                    &family.tokenizer.encode_chat(&got.text).unwrap(),
                    "{}: {:?}",
                    family.name,
                    text
                );
                Ok(())
            })
            .unwrap();
    }
}
