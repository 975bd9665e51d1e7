//! Tokenizers and chat templates against what transformers and mlx-lm make of them.
//!
//! The files are described in `fixtures/README.md`.

use inference_text::{
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
        let bos = tokenizer.bos_token().and_then(|token| tokenizer.token_to_id(token));
        assert_eq!(bos.map(u64::from), golden["bos"].as_u64(), "{name}");
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
fn render(format: &ChatFormat, case: &Value) -> Result<inference_text::Rendered, TextError> {
    let mut kwargs: Map<String, Value> = case["kwargs"].as_object().unwrap().clone();
    let shared = json(fixtures().join("chats.json"));
    let tools = kwargs
        .shift_remove("tools")
        .map(|tools| if tools == true { shared["tools"].clone() } else { tools });
    let documents = kwargs.shift_remove("documents");
    let add_generation_prompt = kwargs.shift_remove("add_generation_prompt") == Some(true.into());
    let name = case["name"].as_str().unwrap();
    let messages = list(case.get("messages").unwrap_or_else(|| &shared["chats"][name]));
    format.render_and_encode(&ChatInput {
        tools: tools.as_ref().map(list),
        documents: documents.as_ref().map(list),
        add_generation_prompt,
        kwargs: Some(&kwargs),
        // 2024-07-26 14:05:09
        now: LocalTime { seconds: 1_722_002_709 },
        ..ChatInput::new(messages)
    })
}

/// The fault of a case, if any.
fn check_chat(format: &ChatFormat, case: &Value) -> Option<String> {
    let got = render(format, case);
    let Some(error) = case.get("error").and_then(Value::as_str) else {
        let got = match got {
            Ok(got) => got,
            Err(err) => return Some(err.to_string()),
        };
        let want = case["rendered"].as_str().unwrap();
        if got.text != want {
            return Some(format!("renders\n{}\ninstead of\n{want}", got.text));
        }
        let want =
            case.get("ids").map(ids).filter(|want| case["name"] != INJECTION && *want != got.ids);
        return want.map(|want| format!("encodes to {:?} instead of {want:?}", got.ids));
    };
    match (got, error.strip_prefix("TemplateError: ")) {
        // It misses the text of a turn that only calls, which is empty here.
        (Ok(_), None) if case["name"] == "null_content" && error.contains("Undefined") => None,
        (Ok(got), _) => Some(format!("renders\n{}\nwhere transformers fails: {error}", got.text)),
        (Err(TextError::Raised(message)), Some(want)) if message == want => None,
        (Err(err), Some(want)) => Some(format!("fails with {err:?} instead of {want}")),
        (Err(_), None) => None,
    }
}

fn assert_none(failures: &[String]) {
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn chats_render_and_encode_as_in_transformers() {
    let mut failures = Vec::new();
    for name in FAMILIES {
        let (dir, tokenizer) = family(name);
        let format = ChatFormat::from_dir(&dir, &tokenizer, "").unwrap();
        assert!(format.has_template());
        for file in ["golden.json", "more_chats.json"] {
            let golden = json(dir.join(file));
            for case in list(golden.get("chat").unwrap_or(&golden)) {
                if NOT_MATCHED.iter().any(|(f, n, _)| *f == name && case["name"] == *n) {
                    continue;
                }
                let wrong = check_chat(&format, case);
                failures.extend(
                    wrong.map(|w| format!("{name}/{} {}: {w}", case["name"], case["kwargs"])),
                );
            }
        }
    }
    assert_none(&failures);
}

#[test]
fn the_constructs_of_public_templates_render_as_in_jinja2() {
    let mut failures = Vec::new();
    let (_, tokenizer) = family("qwen");
    for group in list(&json(fixtures().join("template_goldens.json"))) {
        let label = group["name"].as_str().unwrap();
        let source = group["template"].as_str().map(str::to_owned).unwrap_or_else(|| {
            std::fs::read_to_string(fixtures().join("templates").join(format!("{label}.jinja")))
                .unwrap()
        });
        let format = match ChatFormat::from_template(&source, &tokenizer) {
            Ok(format) => format,
            Err(_) if list(&group["cases"]).iter().all(|case| case.get("error").is_some()) => {
                continue;
            }
            Err(err) => {
                failures.push(format!("{label}: {err}"));
                continue;
            }
        };
        for case in list(&group["cases"]) {
            let wrong = check_chat(&format, case);
            failures.extend(wrong.map(|w| format!("{label}/{}: {w}", case["name"])));
        }
    }
    assert_none(&failures);
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
                std::fs::write(dir.path().join(format!("{file}.json")), case[file].to_string())
                    .unwrap();
            }
        }
        let tokenizer = Tokenizer::from_dir(dir.path()).unwrap();
        let got: Vec<u32> = tokenizer.eos_ids().iter().copied().collect();
        assert_eq!(got, ids(&case["eos_token_ids"]), "{}", case["model"]);
    }
    assert_eq!(list(&cases).len(), 28);
}
