//! The parser finds the calls that mlx-lm's parsers find in the same texts.
//!
//! `fixtures/mlx_lm_calls.json` is what `fixtures/mlx_lm_calls.py` wrote with mlx-lm 0.32.2.

use inference_text::answer::{AnswerParser, Family, Piece, Tool};
use serde_json::Value;

fn family(name: &str) -> Family {
    match name {
        "hermes" => Family::Hermes,
        "llama3" => Family::Llama3,
        "mistral" => Family::Mistral,
        "glm" => Family::Glm,
        "kimi" => Family::Kimi,
        "minimax" => Family::MiniMax,
        "lfm" => Family::Lfm,
        _ => Family::Gemma,
    }
}

/// Returns true when two values are equal, 3 and 3.0 being the same.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

#[test]
fn the_calls_are_those_of_mlx_lm() {
    let fixture: Value = serde_json::from_str(include_str!("../fixtures/mlx_lm_calls.json"))
        .expect("the fixture is JSON");
    let tools: Vec<Tool> = fixture["tools"]
        .as_array()
        .expect("the fixture lists tools")
        .iter()
        .map(|tool| Tool {
            name: tool["name"].as_str().expect("a tool has a name").to_owned(),
            parameters: tool["parameters"].clone(),
            strict: false,
        })
        .collect();
    let cases = fixture["cases"].as_array().expect("the fixture lists cases");
    let mut differ = Vec::new();
    for case in cases {
        let text = case["text"].as_str().expect("a case has a text");
        let family = family(case["family"].as_str().expect("a case has a family"));
        let mut parser = AnswerParser::with_schemas(family, "", &tools);
        let mut pieces = parser.push(text);
        pieces.extend(parser.finish());
        let mut calls = Vec::new();
        let mut content = String::new();
        for piece in pieces {
            match piece {
                Piece::ToolCall { name, .. } => calls.push((name, Value::Null)),
                Piece::Arguments { text, index } => {
                    calls[index].1 = serde_json::from_str(&text).expect("arguments are JSON");
                }
                Piece::Content(text) | Piece::Reasoning(text) => content += &text,
            }
        }
        let expected = case["calls"].as_array();
        let agrees = match expected {
            None => calls.is_empty() && content == text,
            Some(expected) => {
                expected.len() == calls.len()
                    && expected.iter().zip(&calls).all(|(expected, (name, arguments))| {
                        expected["name"] == name.as_str() && same(&expected["arguments"], arguments)
                    })
            }
        };
        if !agrees {
            differ.push(format!("{} {text:?}\n  {expected:?}\n  {calls:?}", case["parser"]));
        }
    }
    assert!(cases.len() > 450, "the fixture has {} cases", cases.len());
    assert!(differ.is_empty(), "{} of {}:\n{}", differ.len(), cases.len(), differ.join("\n"));
}
