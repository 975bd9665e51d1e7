//! Answers that are held to a schema, a regular expression or a grammar.

use std::fs;

use serde_json::Value;

use crate::{FOX, generated, json, ml, ml_with_stdin, text};

const PERSON: &str = r#"{
  "type": "object",
  "properties": {
    "city": {"type": "string", "maxLength": 20},
    "age": {"type": "integer", "minimum": 0, "maximum": 130}
  },
  "required": ["city", "age"],
  "additionalProperties": false
}"#;

#[test]
fn an_answer_keeps_to_a_schema() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("person.json");
    fs::write(&path, PERSON).unwrap();
    let path = path.to_str().unwrap();
    let prompt = "Extract the name, age and city as JSON: Mara is 31 and lives in Oslo.";
    for more in [&["-t", "0"][..], &["-t", "1.5", "--seed", "7"]] {
        let arguments = [&["generate", "-q", "--json-schema", path, prompt], more].concat();
        let answer: Value = serde_json::from_str(&generated(&arguments)).unwrap();
        let keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["city", "age"], "{answer}");
        assert!(answer["age"].as_u64().is_some_and(|age| age <= 130), "{answer}");
    }
    let report = json(&["generate", "--json", "-t", "0", "--json-schema", path, FOX]);
    assert_eq!(report["finish_reason"], "stop");
    assert_eq!(report["stop"]["type"], "end_of_sequence");
}

#[test]
fn an_answer_keeps_to_a_regular_expression_and_to_a_grammar() {
    let answer = generated(&["generate", "-q", "-t", "0", "--regex", "(yes|no), [a-z]{3}", FOX]);
    let (word, rest) = answer.trim_end().split_once(", ").unwrap();
    assert!(["yes", "no"].contains(&word) && rest.len() == 3, "{answer}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list.lark");
    fs::write(&path, "start: item (\", \" item){2}\nitem: /[a-z]{2,6}/\n").unwrap();
    let path = path.to_str().unwrap();
    let answer = generated(&["generate", "-q", "-t", "1", "--seed", "3", "--grammar", path, FOX]);
    assert_eq!(answer.trim_end().split(", ").count(), 3, "{answer}");
}

#[test]
fn each_answer_of_a_conversation_keeps_to_it() {
    let arguments = ["chat", "-q", "-t", "0", "--regex", "[A-Z][a-z]{2,5}\\."];
    let output = ml_with_stdin(&arguments, b"Hello\nWhat is your name?\n");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answers = text(&output.stdout);
    assert_eq!(answers.lines().count(), 2, "{answers}");
    for answer in answers.lines() {
        assert!(answer.ends_with('.') && (4..=7).contains(&answer.len()), "{answer}");
    }
}

#[test]
fn reasoning_may_come_before_the_form() {
    let regex = ["generate", "-q", "--regex", "(yes|no)", "--reasoning", "<think>", "</think>"];
    let answer = generated(&[&regex[..], &["-t", "0", FOX]].concat());
    assert!(["yes", "no"].contains(&answer.trim_end()), "{answer}");
    // The ids are those of the marks and the end of the turn.
    let bias = ["--logit-bias", r#"{"3": 90, "4": 95, "2": 99}"#, "-t", "0", FOX];
    let said = generated(&[&regex[..], &bias[..]].concat());
    assert!(["yes", "no"].contains(&said.trim()), "{said}");
    let answer = generated(&[&regex[..], &["--special-tokens"], &bias[..]].concat());
    let rest = answer.trim_end().strip_prefix("<think></think>").unwrap().trim_start();
    assert!(["yes", "no"].contains(&rest), "{answer}");
    let marks = ["--reasoning", "<thought>", "</thought>", FOX];
    let output = ml(&[&["generate", "--regex", "a"], &marks[..]].concat());
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.starts_with("error: --reasoning: `<thought>`"), "{error}");
}

#[test]
fn what_cannot_be_held_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    for (flag, value, code, words) in [
        ("--regex", "[a-z".to_owned(), 2, "unclosed character class"),
        ("--json-schema", file("a.json", r#"{"uniqueItems": true}"#), 2, "uniqueItems"),
        ("--json-schema", file("b.json", "{"), 1, "b.json"),
        ("--json-schema", "no/such.json".to_owned(), 1, "no/such.json"),
        ("--grammar", file("c.lark", "start: nothing"), 2, "nothing"),
    ] {
        let output = ml(&["generate", FOX, flag, &value]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{flag} {value}: {error}");
        assert!(error.starts_with("error: ") && error.contains(words), "{flag} {value}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
