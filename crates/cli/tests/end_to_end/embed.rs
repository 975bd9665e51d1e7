//! `ml embed`, `ml rerank` and what a server makes of embedding models, with the backend's
//! fixtures.

use std::fs;

use serde_json::{Value, json};

use crate::serve::{request, serve, wait_until_ready};
use crate::{command, finish, generated, interrupt, ml, ml_with_stdin, text};

const MODELS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../metal-backend/tests/fixtures/embeddings/models");

fn model(name: &str) -> String {
    format!("{MODELS}/{name}")
}

/// The vectors of JSON lines.
fn vectors(lines: &str) -> Vec<Vec<f64>> {
    let vector = |line: &str| {
        let object: Value = serde_json::from_str(line).unwrap();
        let values = object["embedding"].as_array().unwrap();
        values.iter().map(|value| value.as_f64().unwrap()).collect()
    };
    lines.lines().map(vector).collect()
}

#[test]
fn texts_come_from_arguments_files_and_pipes() {
    let model = model("bert");
    let embed = ["embed", "--quiet", "--model", &model, "--dtype", "f32"];
    let by_arguments = generated(&[&embed[..], &["a fox", "snow"]].concat());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("texts");
    fs::write(&path, "a fox\nsnow\n").unwrap();
    let by_file = generated(&[&embed[..], &["--file", path.to_str().unwrap()]].concat());
    let by_pipe = text(&ml_with_stdin(&embed, b"a fox\nsnow\n").stdout);
    assert_eq!((&by_arguments, &by_arguments), (&by_file, &by_pipe));
    let made = vectors(&by_arguments);
    assert_eq!((made.len(), made[0].len()), (2, 32));
    let length: f64 = made[0].iter().map(|value| value * value).sum();
    assert!((length - 1.0).abs() < 1e-5, "{length}");
    let second: Value = serde_json::from_str(by_arguments.lines().nth(1).unwrap()).unwrap();
    assert_eq!(second["index"], 1);
}

#[test]
fn options_change_vectors_and_an_array_holds_them_all() {
    let model = model("qwen3_embedding");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vectors.npy");
    let embed = ["embed", "--quiet", "--model", &model, "--dimensions", "8"];
    let plain = generated(&[&embed[..], &["fox"]].concat());
    let asked = generated(&[&embed[..], &["--prompt-name", "query", "fox"]].concat());
    assert_ne!(plain, asked);
    let output = path.to_str().unwrap();
    assert_eq!(generated(&[&embed[..], &["--output", output, "fox"]].concat()), "");
    let bytes = fs::read(&path).unwrap();
    assert!(bytes.starts_with(b"\x93NUMPY"));
    let values = bytes[bytes.len() - 32..].chunks_exact(4);
    let values = values.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    for (found, expected) in values.zip(&vectors(&plain)[0]) {
        assert!((f64::from(found) - expected).abs() < 1e-6, "{found}, not {expected}");
    }
}

#[test]
fn documents_are_printed_the_best_first() {
    let model = model("bert_reranker");
    let rerank = ["rerank", "--quiet", "--model", &model];
    let documents = ["where is the fox?", "a fox runs", "snow"];
    let out = generated(&[&rerank[..], &["--json"], &documents].concat());
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let score = |line: &Value| line["score"].as_f64().unwrap();
    assert_eq!(lines.len(), 2);
    assert!(score(&lines[0]) >= score(&lines[1]) && score(&lines[0]) < 1.0, "{out}");
    let best = lines[0]["document"].as_str().unwrap();
    let one = generated(&[&rerank[..], &["--top", "1"], &documents].concat());
    assert!(one.trim_end().ends_with(best) && one.lines().count() == 1, "{one}");
}

#[test]
fn what_is_missing_or_wrong_is_told_with_the_remedy() {
    let fails = |arguments: &[&str], code: i32, part: &str| {
        let output = ml(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(part), "{arguments:?}: {error}");
    };
    let model = model("bert");
    fails(&["embed", "a"], 2, "ML_EMBEDDING_MODEL");
    fails(&["embed", "-m", &model, "--truncate", "middle", "a"], 2, "none, end or start");
    fails(&["embed", "-m", &model, "--prompt-name", "no", "a"], 2, "document, query");
    fails(&["rerank", "-m", &model, "a", "b"], 2, "take a reranker");
    fails(&["generate", "-m", &model, "a"], 1, "ml embed");
    let long = "fox ".repeat(100);
    fails(&["embed", "-m", &model, &long], 1, "102 tokens");
    fails(&["embed", "-m", &model, &long], 1, "or give --truncate end");
    fails(&["embed", "-m", "no/such/folder", "a"], 1, "no/such/folder: no such folder");
    fails(&["embed", "-m", &model, "--prompt-name", "\u{1b}[31mz", "a"], 2, "no prompt ` [31mz`");
    fails(&["rerank", "-m", &model, "--pooling", "mean", "a", "b"], 2, "'--pooling'");
}

#[test]
fn threads_of_the_environment_hold_for_vectors_and_pictures() {
    let model = model("bert");
    for arguments in [
        &["embed", "-m", &model, "a"][..],
        &["rerank", "-m", &model, "a", "b"],
        &["image", "-m", "no/such/folder", "a"],
    ] {
        let output = command(arguments).env("ML_THREADS", "20000").output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains("--threads") && error.contains("1024"), "{arguments:?}: {error}");
    }
}

#[test]
fn info_tells_vectors_and_prompts() {
    let told = generated(&["info", "--model", &model("bert")]);
    for line in ["32 values of length 1, pooled by mean", "prompt         query: \"query: \""] {
        assert!(told.contains(line), "{told}");
    }
    let told = generated(&["info", "--json", "--model", &model("xlm_roberta_reranker")]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["scores"], &told["dimensions"]), (&json!(true), &Value::Null));
}

#[test]
fn a_server_embeds_and_reranks_beside_its_text_model() {
    let (embeds, scores) = (model("bert"), model("qwen3_reranker"));
    let (child, address) = serve(&["--embedding-model", &embeds, "--embedding-model", &scores]);
    wait_until_ready(&address);
    let answer = |path: &str, body: Value| -> Value {
        let answer = request(&address, "POST", path, &body.to_string());
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
    };
    let made = answer("/v1/embeddings", json!({"model": "bert", "input": ["a fox", "snow"]}));
    assert_eq!(made["data"][1]["embedding"].as_array().map(Vec::len), Some(32), "{made}");
    let ranked = answer("/v1/rerank", json!({"query": "fox", "documents": ["a fox", "snow"]}));
    assert_eq!(ranked["model"], "qwen3_reranker", "{ranked}");
    assert_eq!(ranked["results"].as_array().map(Vec::len), Some(2), "{ranked}");
    interrupt(&child);
    assert_eq!(finish(child).0, Some(0));
}
