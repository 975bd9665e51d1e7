//! gpt-oss, whose answers are in channels: their marks are neither printed nor kept.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::{copy_parts, generated, json, ml, ml_with_stdin, text};

/// The grammar of the answers: reasoning, then an answer.
const GRAMMAR: &str = r#"start: <|channel|> "analysis" <|message|> "Hm." <|end|> <|start|> "assistant" <|channel|> "final" <|message|> "Blue."
"#;

/// A folder with the model, whose template takes no tools, and its grammar.
pub struct GptOss(TempDir);

impl GptOss {
    pub fn new() -> GptOss {
        let folder = tempfile::tempdir().unwrap();
        copy_parts(["models/gpt_oss", "tokenizers/harmony"], folder.path());
        fs::write(folder.path().join("grammar.lark"), GRAMMAR).unwrap();
        GptOss(folder)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// The arguments of a command whose answers are held to the grammar.
    fn arguments(&self, command: &str, more: &[&str]) -> Vec<String> {
        let (model, grammar) = (self.path(""), self.path("grammar.lark"));
        let held = [command, "--model", &model, "--grammar", &grammar, "-t", "0", "-q"];
        held.iter().chain(more).map(|argument| (*argument).to_owned()).collect()
    }
}

fn strs(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

#[test]
fn a_chat_neither_prints_nor_saves_marks_of_channels() {
    let model = GptOss::new();
    let saved = model.path("saved.json");
    let turns = format!("A colour?\nSure?\n/save {saved}\n");
    let output = ml_with_stdin(&strs(&model.arguments("chat", &[])), turns.as_bytes());
    let error = text(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert_eq!(text(&output.stdout), "Blue.\nBlue.\n");
    let told: Vec<&str> = error.lines().filter(|line| !line.starts_with("saved to")).collect();
    assert_eq!(told, ["Hm.", "Hm."]);
    let saved = fs::read_to_string(saved).unwrap();
    assert!(!saved.contains("<|") && !saved.contains("analysis"), "{saved}");
    let messages: Value = serde_json::from_str(&saved).unwrap();
    for answer in [&messages[1], &messages[3]] {
        assert_eq!(answer["content"], "Blue.");
        assert_eq!(answer["reasoning_content"], "Hm.");
    }
    let hidden = model.arguments("chat", &["--hide-reasoning"]);
    let output = ml_with_stdin(&strs(&hidden), b"A colour?\n");
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("Blue.\n".into(), String::new()));
}

#[test]
fn an_answer_is_printed_without_marks_unless_they_are_asked_for() {
    let model = GptOss::new();
    let output = ml(&strs(&model.arguments("generate", &["A colour?"])));
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("Blue.\n".into(), "Hm.\n".into()));
    let marked = generated(&strs(&model.arguments("generate", &["--special-tokens", "A colour?"])));
    let all = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Blue.";
    assert_eq!(marked, format!("{all}\n"));
    let raw = generated(&strs(&model.arguments("generate", &["--raw", "A colour?"])));
    assert_eq!(raw, "analysisHm.assistantfinalBlue.\n");
}

#[test]
fn the_report_has_the_text_and_its_parts() {
    let model = GptOss::new();
    let parts = serde_json::json!({"content": "Blue.", "reasoning": "Hm.", "tool_calls": []});
    let report = |more: &[&str]| {
        let more = [more, &["--json", "A colour?"]].concat();
        json(&strs(&model.arguments("generate", &more)))
    };
    let whole = report(&[]);
    assert_eq!(whole["text"], "analysisHm.assistantfinalBlue.");
    assert_eq!(whole["answer"], parts);
    let marked = report(&["--special-tokens"]);
    assert!(marked["text"].as_str().unwrap().starts_with("<|channel|>analysis"), "{marked}");
    assert_eq!(marked["answer"], parts);
    assert_eq!(marked["token_ids"], whole["token_ids"]);
    let stopped = report(&["--stop", "lue"]);
    assert_eq!(stopped["text"], "analysisHm.assistantfinalB");
    assert_eq!(stopped["answer"]["content"], "B");
    assert!(report(&["--raw"]).get("answer").is_none());
}
