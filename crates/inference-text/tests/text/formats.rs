//! Conversations of checkpoints without a chat template, or with one that cannot be read.

use std::path::{Path, PathBuf};

use inference_text::{AddSpecial, ChatFormat, ChatInput, Tokenizer};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A copy of a fixture's files without its template, in which each first text stands for a second
/// one.
fn without_template(name: &str, renamed: &[(&str, &str)]) -> TempDir {
    let from: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers").join(name);
    let dir = tempfile::tempdir().unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"] {
        let Ok(mut text) = std::fs::read_to_string(from.join(file)) else { continue };
        for (one, other) in renamed {
            text = text.replace(one, other);
        }
        if file == "tokenizer_config.json" {
            let mut config: Value = serde_json::from_str(&text).unwrap();
            config.as_object_mut().unwrap().remove("chat_template");
            text = config.to_string();
        }
        std::fs::write(dir.path().join(file), text).unwrap();
    }
    dir
}

fn format(dir: &TempDir, model_type: &str) -> ChatFormat {
    let tokenizer = Tokenizer::from_dir(dir.path()).unwrap();
    ChatFormat::from_dir(dir.path(), &tokenizer, model_type).unwrap()
}

fn text(format: &ChatFormat) -> String {
    let messages = [
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": "Hi"}),
        json!({"role": "assistant", "content": "Ho"}),
        json!({"role": "user", "content": "you"}),
    ];
    format.render_and_encode(&ChatInput::new(&messages)).unwrap().text
}

const CHATML: &str = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
                      <|im_start|>assistant\nHo<|im_end|>\n<|im_start|>user\nyou<|im_end|>\n\
                      <|im_start|>assistant\n";

#[test]
fn without_a_template_marks_that_are_tokens_make_the_format() {
    for (fixture, model_type) in [
        ("qwen", "qwen3"),
        ("qwen", "llama"),
        ("qwen", "gemma4"),
        ("qwen", "mistral"),
        ("qwen", ""),
    ] {
        let format = format(&without_template(fixture, &[]), model_type);
        assert_eq!(text(&format), CHATML, "{fixture} as {model_type}");
        assert!(!format.is_lines());
    }
    for (fixture, model_type) in [
        ("llama3", "qwen2"),
        ("llama3", "gemma3"),
        ("gemma", "llama"),
        ("gemma", "gemma4_text"),
        ("mistral", "llama"),
        ("mistral", "gemma2"),
    ] {
        let format = format(&without_template(fixture, &[]), model_type);
        assert_eq!(text(&format), "Be brief.\nHi\nHo\nyou", "{fixture} as {model_type}");
        assert!(format.is_lines() && format.fault().is_none());
        assert!(format.source().contains("one a line"), "{}", format.source());
    }
    // A Llama that was taught ChatML.
    let taught = [("<|eot_id|>", "<|im_end|>"), ("<|start_header_id|>", "<|im_start|>")];
    assert_eq!(text(&format(&without_template("llama3", &taught), "llama")), CHATML);
}

#[test]
fn gemma_4_has_turns_of_its_own() {
    let marks = [("<start_of_turn>", "<|turn>"), ("<end_of_turn>", "<turn|>")];
    for model_type in ["gemma4", "gemma4_text"] {
        assert_eq!(
            text(&format(&without_template("gemma", &marks), model_type)),
            "<bos><|turn>system\nBe brief.<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\nHo<turn|>\n\
             <|turn>user\nyou<turn|>\n<|turn>model\n"
        );
    }
}

#[test]
fn a_template_that_cannot_be_read_is_an_error_of_chats_alone() {
    for broken in ["{% if %}", "a\n{{ b", "{% endfor %}", "{%}", "{%}a{% generation %}", "{%"] {
        let dir = without_template("qwen", &[]);
        std::fs::write(dir.path().join("chat_template.jinja"), broken).unwrap();
        let format = format(&dir, "qwen3");
        let tokenizer = Tokenizer::from_dir(dir.path()).unwrap();
        assert!(!tokenizer.encode("Hi", AddSpecial::Prompt).unwrap().is_empty());
        let fault = format.fault().unwrap();
        assert!(fault.contains("`default`, line "), "{fault}");
        assert!(format.source().contains(&fault), "{}", format.source());
        let messages = [json!({"role": "user", "content": "Hi"})];
        let error = format.render_and_encode(&ChatInput::new(&messages)).unwrap_err().to_string();
        assert!(error.contains("chat template, line "), "{error}");
    }
    // Another one can be read.
    let dir = without_template("qwen", &[]);
    std::fs::write(dir.path().join("chat_template.jinja"), "{{ messages[0].content }}").unwrap();
    std::fs::create_dir(dir.path().join("additional_chat_templates")).unwrap();
    std::fs::write(dir.path().join("additional_chat_templates/tool_use.jinja"), "{% if %}")
        .unwrap();
    let format = format(&dir, "qwen3");
    assert_eq!(text(&format), "Be brief.");
    assert!(format.fault().unwrap().contains("`tool_use`"));
    let messages = [json!({"role": "user", "content": "Hi"})];
    let tools = [json!({"type": "function", "function": {"name": "f"}})];
    let input = ChatInput { tools: Some(&tools), ..ChatInput::new(&messages) };
    assert!(format.render_and_encode(&input).is_err());
}

#[test]
fn results_reach_the_model_in_the_order_of_their_calls() {
    let dir = without_template("qwen", &[]);
    let template =
        "{% for m in messages %}{% if m.role == 'tool' %}<{{ m.content }}>{% endif %}{% endfor %}";
    std::fs::write(dir.path().join("chat_template.jinja"), template).unwrap();
    let format = format(&dir, "qwen3");
    let call =
        |id: &str| json!({"id": id, "type": "function", "function": {"name": id, "arguments": {}}});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": id});
    let turn = |ids: [&str; 2], results: [&str; 2]| {
        let [one, other] = results.map(result);
        [json!({"role": "assistant", "tool_calls": ids.map(call)}), one, other]
    };
    let mut messages = vec![json!({"role": "user", "content": "Hi"})];
    messages.extend(turn(["a", "b"], ["b", "a"]));
    messages.extend(turn(["b", "a"], ["a", "b"]));
    messages.extend(turn(["c", "d"], ["c", "d"]));
    let text = format.render_and_encode(&ChatInput::new(&messages)).unwrap().text;
    assert_eq!(text, "<a><b><b><a><c><d>");
}
