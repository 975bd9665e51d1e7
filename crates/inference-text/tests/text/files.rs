//! Model folders that are broken or hostile, and the shapes a chat template comes in.

use inference_text::{AddSpecial, ChatFormat, ChatInput, LocalTime, TextError, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const FILES: [&str; 5] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "config.json",
    "chat_template.jinja",
];

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers").join(name)
}

/// A copy of a family's folder.
fn folder(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in FILES {
        let _ = std::fs::copy(fixture(name).join(file), dir.path().join(file));
    }
    dir
}

fn put(dir: &Path, file: &str, contents: impl AsRef<[u8]>) {
    std::fs::write(dir.join(file), contents).unwrap();
}

fn edit(dir: &Path, file: &str, change: impl FnOnce(&mut Value)) {
    let mut json: Value = serde_json::from_slice(&std::fs::read(dir.join(file)).unwrap()).unwrap();
    change(&mut json);
    put(dir, file, json.to_string());
}

fn load_and_use(dir: &Path) -> Result<(), TextError> {
    let tokenizer = Tokenizer::from_dir(dir)?;
    let ids = tokenizer.encode("Hello <|im_end|> 你好", AddSpecial::Prompt)?;
    tokenizer.decode(&ids, inference_text::SkipSpecial::Yes)?;
    Ok(())
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_name() {
    let cases: [(&str, &[u8], &str); 9] = [
        ("tokenizer.json", b"", "is not valid: EOF"),
        ("tokenizer.json", b"{}", "is not valid: "),
        ("tokenizer.json", b"[1, 2]", "is not valid: "),
        ("tokenizer.json", b"{\"version\": \"1.0\", \"model\": 3}", "is not valid: "),
        ("tokenizer.json", b"\xff\xfe\x00", "is not valid: "),
        (
            "tokenizer_config.json",
            b"{\"added_tokens_decoder\": {}, \"eos_token\": 3}",
            "`eos_token` is 3, expected a token",
        ),
        ("tokenizer_config.json", b"[]", "is not valid: expected an object"),
        (
            "config.json",
            b"{\"eos_token_id\": [1, -2]}",
            "`eos_token_id` is -2, expected an id or a list of ids",
        ),
        ("generation_config.json", b"{\"eos_token_id\": \"x\"}", "`eos_token_id` is \"x\""),
    ];
    for (file, contents, reason) in cases {
        let dir = folder("qwen");
        put(dir.path(), file, contents);
        let err = Tokenizer::from_dir(dir.path()).unwrap_err().to_string();
        assert!(err.contains(file) && err.contains(reason), "{file} {contents:?}: {err}");
    }
    let dir = tempfile::tempdir().unwrap();
    let err = Tokenizer::from_dir(dir.path()).unwrap_err().to_string();
    assert!(err.contains("tokenizer.json` is missing: take it from the model's"), "{err}");
    let dir = folder("qwen");
    std::fs::remove_file(dir.path().join("tokenizer.json")).unwrap();
    std::fs::create_dir(dir.path().join("tokenizer.json")).unwrap();
    let err = Tokenizer::from_dir(dir.path()).unwrap_err().to_string();
    assert!(err.contains("tokenizer.json") && err.contains("is not a file"), "{err}");
}

#[test]
fn a_tokenizer_of_another_kind_is_named_with_what_to_do() {
    for (file, kind, remedy) in [
        ("spm.model", "SentencePiece", "save_pretrained"),
        ("tokenizer.tiktoken", "tiktoken", "conversion"),
        ("vocab.json", "BPE", "save_pretrained"),
        ("vocab.txt", "WordPiece", "save_pretrained"),
    ] {
        let dir = folder("qwen");
        std::fs::remove_file(dir.path().join("tokenizer.json")).unwrap();
        put(dir.path(), file, "what it holds is not read");
        let error = Tokenizer::from_dir(dir.path()).unwrap_err();
        let text = error.to_string();
        for words in ["tokenizer.json` is missing", file, kind, remedy] {
            assert!(text.contains(words), "{file}: {text}");
        }
        let text = inference_core::Error::from(error).to_string();
        assert!(text.contains("tokenizer.json: the file is missing; `"), "{text}");
    }
}

#[test]
fn byte_order_marks_change_nothing_and_other_encodings_are_named() {
    let marked = |bytes: &[u8]| [b"\xef\xbb\xbf", bytes].concat();
    let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let render = |dir: &Path| -> Result<Vec<u32>, TextError> {
        let tokenizer = Tokenizer::from_dir(dir)?;
        let format = ChatFormat::from_dir(dir, &tokenizer, "llama")?;
        let messages = [json!({"role": "user", "content": "hi"})];
        let now = LocalTime { seconds: 0 };
        Ok(format.render_and_encode(&ChatInput { now, ..ChatInput::new(&messages) })?.ids)
    };
    for family in ["qwen", "llama3", "gemma"] {
        let plain = folder(family);
        put(plain.path(), "generation_config.json", "{\"eos_token_id\": 3}");
        let expected = render(plain.path()).unwrap();
        let files: Vec<_> = FILES.into_iter().chain(["generation_config.json"]).collect();
        for file in files {
            let Ok(bytes) = std::fs::read(plain.path().join(file)) else { continue };
            let dir = folder(family);
            put(dir.path(), file, marked(&bytes));
            assert_eq!(render(dir.path()).unwrap(), expected, "{family}: {file}");
            put(dir.path(), file, wide(&format!("\u{feff}{}", String::from_utf8_lossy(&bytes))));
            // Not each family reads each file.
            if let Err(error) = render(dir.path()) {
                let text = error.to_string();
                assert!(text.contains(file) && text.contains("is UTF-16"), "{text}");
            } else {
                assert_eq!(file, "special_tokens_map.json", "{family}");
            }
        }
    }
}

#[test]
fn more_added_tokens_than_any_model_has_are_refused() {
    let dir = folder("qwen");
    edit(dir.path(), "tokenizer.json", |json| {
        let token = |id: usize| json!({"id": id, "content": format!("<{id}>"), "special": true});
        json["added_tokens"] = (0..=inference_text::MAX_ADDED_TOKENS).map(token).collect();
    });
    let error = Tokenizer::from_dir(dir.path()).unwrap_err().to_string();
    assert!(error.contains("added tokens, at most 131072 are taken"), "{error}");
}

#[test]
fn a_merge_on_which_the_library_fails_is_named() {
    let dir = folder("qwen");
    edit(dir.path(), "tokenizer.json", |json| {
        let vocabulary = json["model"]["vocab"].as_object().unwrap();
        let longest = vocabulary.keys().max_by_key(|key| key.len()).unwrap().clone();
        json["model"]["merges"] = json!([[longest.clone(), longest]]);
    });
    let error = Tokenizer::from_dir(dir.path()).unwrap_err().to_string();
    assert!(error.contains("merge 0 of `") && error.contains("not in the vocabulary"), "{error}");
}

#[test]
fn a_huge_file_is_refused_before_it_is_read() {
    for file in ["tokenizer.json", "config.json", "tokenizer_config.json"] {
        let dir = folder("qwen");
        std::fs::File::create(dir.path().join(file)).unwrap().set_len(1 << 40).unwrap();
        let err = Tokenizer::from_dir(dir.path()).unwrap_err();
        assert!(
            matches!(&err, TextError::FileTooLarge { path, .. } if path.ends_with(file)),
            "{err}"
        );
    }
}

#[test]
fn deep_nesting_is_an_error() {
    let deep = "[".repeat(1 << 20);
    let nested = format!("{{\"a\": {}{}}}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    let decoder = format!(
        "{}{}",
        "{\"type\":\"Sequence\",\"decoders\":[".repeat(50_000),
        "]}".repeat(50_000)
    );
    let decoder = format!("{{\"version\":\"1.0\",\"decoder\":{decoder}}}");
    for file in FILES.into_iter().filter(|file| file.ends_with("json")) {
        for contents in [&deep, &nested, &decoder] {
            let dir = folder("llama3");
            // special_tokens_map.json is only read next to a config without `added_tokens_decoder`.
            put(dir.path(), "tokenizer_config.json", "{}");
            put(dir.path(), file, contents);
            let err = Tokenizer::from_dir(dir.path()).unwrap_err().to_string();
            assert!(err.contains(file), "{file}: {err}");
        }
    }
}

#[test]
fn a_truncated_tokenizer_is_an_error_wherever_it_ends() {
    let dir = folder("mistral");
    let whole = std::fs::read(fixture("mistral").join("tokenizer.json")).unwrap();
    let end = whole.trim_ascii_end().len();
    for len in (0..end).step_by(211).chain(end - 20..end) {
        put(dir.path(), "tokenizer.json", &whole[..len]);
        let err = Tokenizer::from_dir(dir.path()).unwrap_err().to_string();
        assert!(err.contains("tokenizer.json"), "{len}: {err}");
    }
}

#[test]
fn any_part_of_another_type_is_an_error_or_harmless() {
    let wrong = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!("x"),
        json!([]),
        json!({}),
        json!([[[]]]),
        json!({"type": "x"}),
    ];
    for name in ["qwen", "gemma", "mistral"] {
        let dir = folder(name);
        let whole: Value =
            serde_json::from_slice(&std::fs::read(dir.path().join("tokenizer.json")).unwrap())
                .unwrap();
        let mut pointers = Vec::new();
        places(&whole, String::new(), &mut pointers);
        for pointer in pointers {
            for value in &wrong {
                let mut json = whole.clone();
                *json.pointer_mut(&pointer).unwrap() = value.clone();
                put(dir.path(), "tokenizer.json", json.to_string());
                let _ = load_and_use(dir.path());
            }
        }
    }
}

/// Pointers into everything but the long lists, of which the first two entries stand for all.
fn places(json: &Value, at: String, out: &mut Vec<String>) {
    match json {
        Value::Object(map) => {
            for (key, value) in map.iter().take(if map.len() > 30 { 2 } else { 30 }) {
                let key = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                out.push(key.clone());
                places(value, key, out);
            }
        }
        Value::Array(list) => list.iter().enumerate().take(2).for_each(|(i, value)| {
            out.push(format!("{at}/{i}"));
            places(value, format!("{at}/{i}"), out);
        }),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn flipped_bits_never_end_the_process(flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..4), family in 0..3usize) {
        let name = ["qwen", "gemma", "phi"][family];
        let dir = folder(name);
        for file in ["tokenizer.json", "tokenizer_config.json"] {
            let mut bytes = std::fs::read(dir.path().join(file)).unwrap();
            for (at, bit) in &flips {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            put(dir.path(), file, &bytes);
        }
        let _ = load_and_use(dir.path());
    }
}

#[test]
fn padding_and_truncation_are_switched_off() {
    let dir = folder("qwen");
    edit(dir.path(), "tokenizer.json", |json| {
        json["truncation"] =
            json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
        json["padding"] = json!({"strategy": {"Fixed": 64}, "direction": "Left", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"});
    });
    let encode = |dir: &Path| {
        Tokenizer::from_dir(dir).unwrap().encode("a b c d e f", AddSpecial::Always).unwrap()
    };
    assert_eq!(encode(dir.path()), encode(&fixture("qwen")));
}

#[test]
fn tokens_that_only_the_config_calls_special_are_special() {
    let dir = folder("olmo");
    edit(dir.path(), "tokenizer_config.json", |json| {
        json["added_tokens_decoder"]["982"]["special"] = json!(true);
        json["extra_special_tokens"] = json!(["<|assistant|>"]);
    });
    let tokenizer = Tokenizer::from_dir(dir.path()).unwrap();
    assert!([980, 981, 982, 983].iter().all(|id| tokenizer.special_ids().contains(id)));
    assert!(!tokenizer.special_ids().contains(&984));
    // A token that no file listed gets the next id.
    edit(dir.path(), "tokenizer_config.json", |json| json["eos_token"] = json!("<|new|>"));
    let tokenizer = Tokenizer::from_dir(dir.path()).unwrap();
    assert_eq!(tokenizer.encode("a<|new|>", AddSpecial::Never).unwrap()[1], 985);
    assert!(tokenizer.eos_ids().contains(&985));
}

fn chat(dir: &Path, model_type: &str, messages: &Value, tools: Option<&[Value]>) -> String {
    let tokenizer = Tokenizer::from_dir(dir).unwrap();
    let format = ChatFormat::from_dir(dir, &tokenizer, model_type).unwrap();
    let input = ChatInput {
        tools,
        now: LocalTime { seconds: 0 },
        ..ChatInput::new(messages.as_array().unwrap())
    };
    format.render_and_encode(&input).unwrap().text
}

#[test]
fn without_a_list_in_the_config_the_flags_are_those_of_the_tokenizer() {
    let dir = folder("phi");
    edit(dir.path(), "tokenizer_config.json", |json| {
        json.as_object_mut().unwrap().remove("added_tokens_decoder");
        json["eos_token"] = json!("<|end|>");
    });
    // `rstrip` takes the white space after it.
    let tokenizer = Tokenizer::from_dir(dir.path()).unwrap();
    let ids = |text| tokenizer.encode(text, AddSpecial::Never).unwrap();
    assert_eq!(ids("a<|end|> \nb"), ids("a<|end|>b"));
}

#[test]
fn templates_are_found_in_the_order_of_transformers() {
    let hi = json!([{"role": "user", "content": "Hi"}]);
    let dir = folder("qwen");
    let path = dir.path();
    edit(path, "tokenizer_config.json", |json| {
        json["chat_template"] = json!([
            {"name": "default", "template": "default"},
            {"name": "tool_use", "template": "tools {{ tools|length }}"},
        ]);
    });
    assert_eq!(chat(path, "", &hi, None), "default");
    assert_eq!(chat(path, "", &hi, Some(&[json!({}), json!({})])), "tools 2");
    put(path, "chat_template.json", json!({"chat_template": "processor"}).to_string());
    assert_eq!(chat(path, "", &hi, None), "default");
    edit(path, "tokenizer_config.json", |json| json["chat_template"] = json!("string"));
    assert_eq!(chat(path, "", &hi, None), "string");
    // The processor's own template writes what is shown, and text is left to the tokenizer's.
    let shown =
        json!([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "?"}]}]);
    let written = json!([{"role": "user", "content": [{"type": "text", "text": "?"}]}]);
    assert_eq!(chat(path, "", &shown, None), "processor");
    assert_eq!(chat(path, "", &written, None), "string");
    let format = ChatFormat::from_dir(path, &Tokenizer::from_dir(path).unwrap(), "").unwrap();
    let tools = [json!({})];
    let messages = shown.as_array().unwrap();
    let input = ChatInput { tools: Some(&tools), ..ChatInput::new(messages) };
    let error = format.render_and_encode(&input).unwrap_err().to_string();
    assert!(error.contains("`tools`: are not written beside pictures and sounds"), "{error}");
    put(
        path,
        "chat_template.json",
        json!({"chat_template": "both {{ tools|length }}"}).to_string(),
    );
    assert_eq!(chat(path, "", &shown, Some(&tools)), "both 1");
    put(path, "chat_template.json", json!({"chat_template": "processor"}).to_string());
    edit(path, "tokenizer_config.json", |json| json["chat_template"] = Value::Null);
    assert_eq!(chat(path, "", &hi, None), "processor");
    put(path, "chat_template.jinja", "file\r\n{{ eos_token }}\n");
    assert_eq!(chat(path, "", &hi, None), "file\n<|im_end|>");
    std::fs::create_dir(path.join("additional_chat_templates")).unwrap();
    put(path, "additional_chat_templates/tool_use.jinja", "more tools");
    assert_eq!(chat(path, "", &hi, None), "file\n<|im_end|>");
    assert_eq!(chat(path, "", &hi, Some(&[])), "more tools");
    edit(path, "tokenizer_config.json", |json| json["chat_template"] = json!(3));
    std::fs::remove_dir_all(path.join("additional_chat_templates")).unwrap();
    std::fs::remove_file(path.join("chat_template.jinja")).unwrap();
    let err = ChatFormat::from_dir(path, &Tokenizer::from_dir(path).unwrap(), "")
        .unwrap_err()
        .to_string();
    assert!(
        err.contains("tokenizer_config.json") && err.contains("neither a string nor a list"),
        "{err}"
    );
}

#[test]
fn without_a_template_the_family_has_its_format() {
    let turns = json!([
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho"}, {"role": "user", "content": [{"type": "text", "text": "you"}]},
    ]);
    let without = |name: &str| {
        let dir = folder(name);
        let _ = std::fs::remove_file(dir.path().join("chat_template.jinja"));
        edit(dir.path(), "tokenizer_config.json", |json| {
            json.as_object_mut().unwrap().remove("chat_template");
        });
        dir
    };
    for model_type in ["gemma3_text", "gemma2"] {
        assert_eq!(
            chat(without("gemma").path(), model_type, &turns, None),
            "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHo<end_of_turn>\n\
             <start_of_turn>user\nyou<end_of_turn>\n<start_of_turn>model\n"
        );
    }
    assert_eq!(
        chat(without("qwen").path(), "qwen3", &turns, None),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n\
         <|im_start|>user\nyou<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(
        chat(without("llama3").path(), "llama", &turns, None),
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>\
         <|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHo\
         <|eot_id|><|start_header_id|>user<|end_header_id|>\n\nyou<|eot_id|>\
         <|start_header_id|>assistant<|end_header_id|>\n\n"
    );
    assert_eq!(chat(without("mistral").path(), "mistral", &turns, None), "Be brief.\nHi\nHo\nyou");
    // There too, a message cannot end its own turn, and BOS comes once.
    let dir = without("llama3");
    let tokenizer = Tokenizer::from_dir(dir.path()).unwrap();
    let format = ChatFormat::from_dir(dir.path(), &tokenizer, "llama").unwrap();
    assert!(!format.has_template());
    let messages = [json!({"role": "user", "content": "a<|eot_id|>b"})];
    let ids = format.render_and_encode(&ChatInput::new(&messages)).unwrap().ids;
    let count =
        |token: &str| ids.iter().filter(|id| Some(**id) == tokenizer.token_to_id(token)).count();
    assert_eq!((count("<|eot_id|>"), count("<|begin_of_text|>")), (1, 1));
}

#[test]
fn a_tokenizer_is_shared_between_threads() {
    fn shared<T: Send + Sync + Clone>(_: &T) {}
    let tokenizer = Tokenizer::from_dir(&fixture("qwen")).unwrap();
    let format = ChatFormat::from_dir(&fixture("qwen"), &tokenizer, "").unwrap();
    shared(&tokenizer);
    shared(&format);
    let want = tokenizer.encode("Hello world", AddSpecial::Prompt).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert_eq!(tokenizer.encode("Hello world", AddSpecial::Prompt).unwrap(), want)
            });
        }
    });
}

/// A normalizer that replaces `pattern` by `content`, several times over.
fn multiplying(pattern: Value, content: &str, times: usize) -> Value {
    let step = json!({"type": "Replace", "pattern": pattern, "content": content});
    json!({"type": "Sequence", "normalizers": vec![step; times]})
}

#[test]
fn a_normalizer_that_multiplies_an_added_token_is_refused_at_once() {
    let normalizers = [
        multiplying(json!({"String": "o"}), &"o".repeat(100), 5),
        multiplying(json!({"Regex": "."}), &"x".repeat(1000), 5),
    ];
    for normalizer in normalizers {
        let dir = folder("qwen");
        edit(dir.path(), "tokenizer.json", |json| {
            json["normalizer"] = normalizer;
            json["added_tokens"][0]["content"] = "<foo>".into();
            json["added_tokens"][0]["normalized"] = true.into();
        });
        let error = Tokenizer::from_dir(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("tokenizer.json` is not valid: its normalizer `Replace`"),
            "{error}"
        );
        assert!(error.contains("of the added tokens up to"), "{error}");
    }
}

#[test]
fn a_normalizer_that_multiplies_a_text_is_refused_with_every_encode() {
    let dir = folder("qwen");
    edit(dir.path(), "tokenizer.json", |json| {
        json["normalizer"] = multiplying(json!({"String": "\u{1}"}), &"\u{1}".repeat(100), 5);
    });
    let tokenizer = Tokenizer::from_dir(dir.path()).unwrap();
    assert!(!tokenizer.encode("fine", AddSpecial::Never).unwrap().is_empty());
    let error = tokenizer.encode("\u{1}", AddSpecial::Prompt).unwrap_err();
    assert!(
        matches!(&error, TextError::Normalizer { step, size: 1, .. } if step == "Replace"),
        "{error}"
    );
    let format = ChatFormat::from_dir(dir.path(), &tokenizer, "").unwrap();
    let messages = [json!({"role": "user", "content": "a \u{1} <|im_end|>"})];
    let error = format.render_and_encode(&ChatInput::new(&messages)).unwrap_err();
    assert!(matches!(error, TextError::Normalizer { .. }), "{error}");
}
