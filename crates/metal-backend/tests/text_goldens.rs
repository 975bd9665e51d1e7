//! Tokenizers and chat templates against what transformers and mlx-lm make of them.

use metal_backend::text::{
    AddSpecial, ChatFormat, ChatInput, Detokenizer, LocalTime, SkipSpecial, TextError, Tokenizer,
};
use serde_json::{Map, Value};
use std::path::PathBuf;

const FAMILIES: [&str; 8] =
    ["gemma", "harmony", "llama3", "mistral", "olmo", "phi", "qwen", "smol"];

/// Chat cases whose golden is not the behaviour we want.
const NOT_MATCHED: [(&str, &str, &str); 2] = [
    ("llama3", "list_content", "transformers prints a Python list of dicts into the prompt"),
    ("harmony", "list_content", "transformers prints a Python list of dicts into the prompt"),
];

/// Cases that hold control tokens in a user's message: the text is the golden's, the ids are not.
const INJECTION: &str = "special_in_content";

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn family(name: &str) -> (PathBuf, Tokenizer) {
    let dir = fixtures().join("tokenizers").join(name);
    let tokenizer = Tokenizer::from_dir(&dir).unwrap();
    (dir, tokenizer)
}

fn json(path: PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

#[test]
fn encoding_gives_the_ids_of_transformers() {
    for name in FAMILIES {
        let (dir, tokenizer) = family(name);
        let golden = json(dir.join("golden.json"));
        assert_eq!(tokenizer.vocab_size() as u64, golden["vocab_with_added"].as_u64().unwrap());
        assert_eq!(tokenizer.bos_id().map(u64::from), golden["bos"].as_u64(), "{name}");
        assert_eq!(tokenizer.has_thinking(), golden["has_thinking"], "{name}");
        for case in list(&golden["encode"]) {
            let text = case["text"].as_str().unwrap();
            assert!(case.get("hf").is_none() && case.get("hf_special").is_none());
            let never = tokenizer.encode(text, AddSpecial::Never).unwrap();
            assert_eq!(never, ids(&case["raw"]), "{name}: {text:?}");
            let always = tokenizer.encode(text, AddSpecial::Always).unwrap();
            assert_eq!(always, ids(&case["raw_special"]), "{name}: {text:?}");
            let prompt = tokenizer.encode(text, AddSpecial::Prompt).unwrap();
            let has_bos = tokenizer.bos_token().is_some_and(|bos| text.starts_with(bos));
            assert_eq!(prompt, if has_bos { never } else { always }, "{name}: {text:?}");
        }
    }
}

#[test]
fn decoding_gives_the_text_of_transformers_and_so_do_the_pieces() {
    for name in FAMILIES {
        let (dir, tokenizer) = family(name);
        for case in list(&json(dir.join("golden.json"))["decode"]) {
            let ids = ids(&case["ids"]);
            for (skip, key) in [(SkipSpecial::No, "text"), (SkipSpecial::Yes, "text_skip")] {
                let text = case[key].as_str().unwrap();
                assert_eq!(tokenizer.decode(&ids, skip).unwrap(), text, "{name}: {ids:?}");
                let mut detokenizer = Detokenizer::new(&tokenizer, skip).unwrap();
                let mut pieces: String = ids.iter().map(|&id| detokenizer.push(id)).collect();
                pieces += &detokenizer.finish();
                assert_eq!(pieces, text, "{name}: {ids:?}");
            }
        }
    }
}

/// Renders a golden's case: `kwargs` as mlx-lm gets them.
fn render(format: &ChatFormat, case: &Value) -> Result<metal_backend::text::Rendered, TextError> {
    let mut kwargs: Map<String, Value> = case["kwargs"].as_object().unwrap().clone();
    let tools = kwargs.shift_remove("tools");
    let documents = kwargs.shift_remove("documents");
    let add_generation_prompt = kwargs.shift_remove("add_generation_prompt") == Some(true.into());
    format.render_and_encode(&ChatInput {
        tools: tools.as_ref().map(|tools| list(tools)),
        documents: documents.as_ref().map(|documents| list(documents)),
        add_generation_prompt,
        kwargs: Some(&kwargs),
        // 2024-07-26 14:05:09
        now: LocalTime { seconds: 1_722_002_709 },
        ..ChatInput::new(list(&case["messages"]))
    })
}

fn check_chat(label: &str, format: &ChatFormat, case: &Value) {
    let got = render(format, case);
    match case.get("error").and_then(Value::as_str) {
        Some(error) => {
            let err = got.expect_err(&format!("{label}: transformers fails with {error}"));
            if let Some(raised) = error.strip_prefix("TemplateError: ") {
                assert_eq!(err.to_string(), format!("the chat template refuses the messages: {raised}"), "{label}");
            }
        }
        None => {
            let got = got.unwrap_or_else(|err| panic!("{label}: {err}"));
            assert_eq!(got.text, case["rendered"].as_str().unwrap(), "{label}");
            if case["name"] != INJECTION && case.get("ids").is_some() {
                assert_eq!(got.ids, ids(&case["ids"]), "{label}");
            }
        }
    }
}

#[test]
fn chats_render_and_encode_as_in_transformers() {
    for name in FAMILIES {
        let (dir, tokenizer) = family(name);
        let format = ChatFormat::from_dir(&dir, &tokenizer, "").unwrap();
        assert!(format.has_template());
        for file in ["golden.json", "more_chats.json"] {
            let golden = json(dir.join(file));
            for case in golden.get("chat").map_or(list(&golden), |chat| list(chat)) {
                if NOT_MATCHED.iter().any(|(f, n, _)| *f == name && case["name"] == *n) {
                    continue;
                }
                check_chat(&format!("{name}/{} {}", case["name"], case["kwargs"]), &format, case);
            }
        }
    }
}

#[test]
fn the_constructs_of_public_templates_render_as_in_jinja2() {
    let (_, tokenizer) = family("qwen");
    for group in list(&json(fixtures().join("template_goldens.json"))) {
        let label = group["name"].as_str().unwrap();
        let source = group["template"].as_str().map(str::to_owned).unwrap_or_else(|| {
            std::fs::read_to_string(fixtures().join("templates").join(format!("{label}.jinja"))).unwrap()
        });
        let format = match ChatFormat::from_template(&source, &tokenizer) {
            Ok(format) => format,
            Err(_) if list(&group["cases"]).iter().all(|case| case.get("error").is_some()) => continue,
            Err(err) => panic!("{label}: {err}"),
        };
        for (i, case) in list(&group["cases"]).iter().enumerate() {
            check_chat(&format!("{label}[{i}]"), &format, case);
        }
    }
}

#[test]
fn eos_ids_are_those_mlx_lm_stops_on() {
    let cases = json(fixtures().join("tokenizers/eos.json"));
    for case in list(&cases) {
        let dir = tempfile::tempdir().unwrap();
        let family = fixtures().join("tokenizers").join(case["family"].as_str().unwrap());
        std::fs::copy(family.join("tokenizer.json"), dir.path().join("tokenizer.json")).unwrap();
        for file in ["config", "generation_config", "tokenizer_config"] {
            if !case[file].is_null() {
                std::fs::write(dir.path().join(format!("{file}.json")), case[file].to_string()).unwrap();
            }
        }
        let tokenizer = Tokenizer::from_dir(dir.path()).unwrap();
        let got: Vec<u32> = tokenizer.eos_ids().iter().copied().collect();
        assert_eq!(got, ids(&case["eos_token_ids"]), "{}", case["model"]);
    }
    assert_eq!(list(&cases).len(), 28);
}
