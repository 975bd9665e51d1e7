//! `ml serve` with several models.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::serve::{request, send, serve, wait_until_ready};
use crate::{FOX, finish, interrupt, ml, text};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo-model");
const BRUSH: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../metal-backend/tests/fixtures/images/z_image");

/// Small random checkpoints that embed, and that score.
const EMBEDDINGS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../metal-backend/tests/fixtures/embeddings/models");

/// The status and the body of an answer.
fn ask(address: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = request(address, method, path, &body);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}")))
}

fn get(address: &str, path: &str) -> Value {
    ask(address, "GET", path, &Value::Null).1
}

fn says(address: &str, model: &str) -> String {
    let messages = json!([{"role": "user", "content": FOX}]);
    let body = json!({"model": model, "messages": messages, "max_tokens": 8, "temperature": 0});
    let (status, answer) = ask(address, "POST", "/v1/chat/completions", &body);
    assert_eq!(status, 200, "{answer}");
    answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

/// The models' names and states.
fn states(address: &str) -> Vec<(String, String)> {
    let list = get(address, "/v1/models");
    let word = |model: &Value, field: &str| model[field].as_str().unwrap().to_owned();
    let models = list["data"].as_array().unwrap().iter();
    models.map(|model| (word(model, "id"), word(model, "state"))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, state)| ((*name).to_owned(), (*state).to_owned())).collect()
}

fn end(child: Child) -> String {
    interrupt(&child);
    let (code, _, error) = finish(child);
    assert_eq!(code, Some(0), "{error}");
    error
}

/// A folder of models: one that works, and one whose config is cut off.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["fox", "broken"] {
        put(&folder.path().join(name));
    }
    fs::write(folder.path().join("broken/config.json"), "{").unwrap();
    fs::create_dir(folder.path().join("notes")).unwrap();
    folder
}

#[test]
fn models_of_text_and_of_pictures_are_loaded_when_they_are_named() {
    let (a, b) = (format!("a={DEMO}"), format!("b={DEMO}"));
    let (child, address) =
        serve(&["--model", &a, "--model", &b, "--image-model", BRUSH, "--backend", "cpu"]);
    wait_until_ready(&address);
    let unloaded = [("a", "unloaded"), ("b", "unloaded"), ("z_image", "unloaded")];
    assert_eq!(states(&address), pairs(&unloaded));
    // What a model is, is told before it is loaded.
    let model = get(&address, "/v1/models/a");
    assert!(model["max_model_len"].as_u64() > Some(0), "{model}");
    assert!(model["bytes"].as_u64() > Some(1 << 20), "{model}");
    let said = says(&address, "b");
    assert_eq!(
        states(&address),
        pairs(&[("a", "unloaded"), ("b", "loaded"), ("z_image", "unloaded")])
    );
    assert_eq!(says(&address, "a"), said);
    let body = json!({"model": "z_image", "prompt": "a fox", "size": "32x32", "steps": 1});
    let (status, picture) = ask(&address, "POST", "/v1/images/generations", &body);
    assert_eq!(status, 200, "{picture}");
    assert_eq!(picture["size"], "32x32");
    assert_eq!(states(&address), pairs(&[("a", "loaded"), ("b", "loaded"), ("z_image", "loaded")]));
    let chat = json!({"model": "z_image", "messages": [{"role": "user", "content": "hi"}]});
    let (status, error) = ask(&address, "POST", "/v1/chat/completions", &chat);
    assert_eq!(status, 404, "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("images/generations"), "{error}");
    end(child);
}

#[test]
fn a_folder_of_models_is_served_and_a_broken_one_tells_what_is_wrong_with_it() {
    let folder = folder();
    let path = folder.path().to_str().unwrap();
    let (child, address) =
        serve(&["--models-dir", path, "--load", "fox", "--model-alias", "gpt-4=fox"]);
    wait_until_ready(&address);
    assert_eq!(states(&address), pairs(&[("broken", "unloaded"), ("fox", "loaded")]));
    assert_eq!(says(&address, "gpt-4"), says(&address, "fox"));
    let chat = json!({"model": "broken", "messages": [{"role": "user", "content": "hi"}]});
    let (status, error) = ask(&address, "POST", "/v1/chat/completions", &chat);
    assert_eq!((status, &error["error"]["code"]), (503, &json!("model_load_failed")));
    assert!(error["error"]["message"].as_str().unwrap().contains("config.json"), "{error}");
    assert_eq!(states(&address)[0].1, "failed");
    end(child);

    let started = ml(&["serve", "--port", "0", "--models-dir", path, "--pin", "broken", "--quiet"]);
    let error = text(&started.stderr);
    assert_eq!(started.status.code(), Some(1), "{error}");
    assert!(error.contains("`broken`") && error.contains("config.json"), "{error}");
}

#[test]
fn files_of_gguf_are_served() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../metal-backend/tests/fixtures/gguf");
    let folder = tempfile::tempdir().unwrap();
    for name in ["llama.gguf", "qwen3.gguf"] {
        fs::copy(format!("{fixtures}/{name}"), folder.path().join(name)).unwrap();
    }
    let (child, address) = serve(&["--models-dir", folder.path().to_str().unwrap()]);
    wait_until_ready(&address);
    let names = [("llama.gguf", "unloaded"), ("qwen3.gguf", "unloaded")];
    assert_eq!(states(&address), pairs(&names));
    says(&address, "qwen3.gguf");
    assert_eq!(states(&address)[1].1, "loaded");
    end(child);
    let named = format!("small={fixtures}/llama.gguf");
    let (child, address) = serve(&["--model", &named]);
    wait_until_ready(&address);
    assert_eq!(states(&address), pairs(&[("small", "loaded")]));
    end(child);
}

#[test]
fn a_model_alone_is_loaded_at_the_start_whatever_else_is_asked_for() {
    let (child, address) = serve(&["--model", DEMO, "--idle-unload", "1h"]);
    wait_until_ready(&address);
    assert_eq!(states(&address), pairs(&[("demo-model", "loaded")]));
    // It needs no name, as ever.
    let body = json!({"prompt": "Once", "max_tokens": 1});
    assert_eq!(ask(&address, "POST", "/v1/completions", &body).0, 200);
    end(child);
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_loaded() {
    let empty = tempfile::tempdir().unwrap();
    let empty = empty.path().to_str().unwrap();
    let (a, b) = (format!("a={DEMO}"), format!("b={DEMO}"));
    let (named, colon) = (format!("x={empty}"), format!("x:y={empty}"));
    for (arguments, expected) in [
        (vec!["--model", DEMO, "--model", DEMO], "two models are called `demo-model`"),
        (vec!["--model", &a, "--pin", "x"], "--pin: there is no model `x`; there are `a`"),
        (vec!["--model", &a, "--load", "x"], "--load: there is no model `x`"),
        (vec!["--model", &a, "--model", &b, "--model-name", "x"], "--model-name is for one model"),
        (vec!["--model", &a, "--model", &b, "--model-alias", "x"], "write ALIAS=NAME"),
        (vec!["--model", &a, "--model", &b, "--adapter", empty], "--adapter is for one model"),
        (vec!["--adapter", &named, "--adapter", empty], "write NAME="),
        (vec!["--model", &a, "--model", &b, "--adapter", &named], "for one model that answers"),
        (vec!["--adapter", &named, "--adapter", &colon], "--adapter x:y="),
        (vec!["--adapter", "*=/nowhere"], "must not be empty"),
        (vec!["--adapter", "latest=/nowhere"], "must not be empty"),
        (vec!["--adapter", "a/b=/nowhere"], "must not be empty"),
        (vec!["--adapter", "=/nowhere"], "must not be empty"),
        (vec!["--models-dir", empty], "--models-dir: no folder in"),
        (vec!["--model", &a, "--model-name", "x"], "name one model twice"),
        (vec!["--max-n", "0"], "--max-n: must be at least 1"),
        (vec!["--host", "example.org"], "expected an address such as 127.0.0.1"),
        (vec!["--model", &a, "--image-keep"], "without a model that makes pictures"),
        (vec!["--image-keep"], "without --image-model"),
        (vec!["--idle-unload", "soon"], "expected a time such as 90s"),
    ] {
        let all: Vec<_> = ["serve", "--port", "0"].into_iter().chain(arguments).collect();
        let output = ml(&all);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{all:?}: {error}");
        assert!(error.contains(expected), "{all:?}: {error}");
    }
    let small = ml(&["serve", "--port", "0", "--model", &a, "--models-memory", "1MiB", "--quiet"]);
    let error = text(&small.stderr);
    assert_eq!(small.status.code(), Some(1), "{error}");
    assert!(error.contains("1.0 MiB free") && error.contains("--models-memory"), "{error}");
    let missing = ml(&["serve", "--port", "0", "--model", &a, "--model", "b=no/such/model"]);
    assert_eq!(missing.status.code(), Some(1), "{}", text(&missing.stderr));
    assert!(text(&missing.stderr).contains("no/such/model"));
}

#[test]
fn models_that_embed_and_that_score_are_of_the_same_pool() {
    let (text, embeds) = (format!("text={DEMO}"), format!("vectors={EMBEDDINGS}/bert"));
    let scores = format!("{EMBEDDINGS}/bert_reranker");
    let (child, address) = serve(&[
        "--model",
        &text,
        "--model",
        &embeds,
        "--embedding-model",
        &scores,
        "--backend",
        "cpu",
    ]);
    wait_until_ready(&address);
    let unloaded = [("text", "unloaded"), ("vectors", "unloaded"), ("bert_reranker", "unloaded")];
    assert_eq!(states(&address), pairs(&unloaded));
    let (status, made) = ask(&address, "POST", "/v1/embeddings", &json!({"input": ["a", "b"]}));
    assert_eq!((status, &made["model"]), (200, &json!("vectors")), "{made}");
    assert_eq!(made["data"].as_array().unwrap().len(), 2);
    let body = json!({"query": "a", "documents": ["b", "c"]});
    let (status, ranked) = ask(&address, "POST", "/v1/rerank", &body);
    assert_eq!((status, &ranked["model"]), (200, &json!("bert_reranker")), "{ranked}");
    let body = json!({"model": "vectors", "messages": [{"role": "user", "content": FOX}]});
    let (status, refused) = ask(&address, "POST", "/v1/chat/completions", &body);
    assert_eq!(status, 404, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("ask /v1/embeddings"));
    let loaded = [("text", "unloaded"), ("vectors", "loaded"), ("bert_reranker", "loaded")];
    assert_eq!(states(&address), pairs(&loaded));
    end(child);
}

/// Copies the demo model to `path`, its config last, as one who puts a model into a folder that is
/// watched does.
fn put(path: &Path) {
    fs::create_dir(path).unwrap();
    for file in fs::read_dir(Path::new(DEMO)).unwrap().map(|entry| entry.unwrap().path()) {
        if file.is_file() && !file.ends_with("config.json") {
            fs::copy(&file, path.join(file.file_name().unwrap())).unwrap();
        }
    }
    fs::copy(Path::new(DEMO).join("config.json"), path.join("config.json")).unwrap();
}

fn wait_for_states(address: &str, expected: &[(&str, &str)]) {
    let begun = Instant::now();
    while states(address) != pairs(expected) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", states(address));
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn models_that_are_put_into_the_folder_are_served_and_those_that_are_taken_away_go() {
    let folder = folder();
    let path = folder.path().to_str().unwrap();
    let (child, address) = serve(&["--models-dir", path, "--model-alias", "gpt-4=fox"]);
    wait_until_ready(&address);
    let said = says(&address, "fox");
    // A request for an unknown name looks for it. The server looks once a second at most.
    put(&folder.path().join("bear"));
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(says(&address, "bear"), said);
    let all = [("broken", "unloaded"), ("fox", "loaded"), ("bear", "loaded")];
    assert_eq!(states(&address), pairs(&all));

    // One that is in use is not torn away from its requests.
    let body = json!({
        "model": "fox", "prompt": FOX, "max_tokens": 400, "ignore_eos": true, "stream": true,
    });
    let mut stream = send(&address, "POST", "/v1/completions", &body.to_string());
    stream.read_exact(&mut [0; 400]).unwrap();
    fs::remove_dir_all(folder.path().join("fox")).unwrap();
    wait_for_states(&address, &[("broken", "unloaded"), ("bear", "loaded")]);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("[DONE]") && !rest.contains("error"), "{rest}");
    let chat = json!({"model": "gpt-4", "messages": [{"role": "user", "content": FOX}]});
    let (status, error) = ask(&address, "POST", "/v1/chat/completions", &chat);
    assert_eq!((status, &error["error"]["code"]), (404, &json!("model_not_found")));
    let metrics = request(&address, "GET", "/metrics", "");
    assert!(metrics.contains("ml_model_loaded{model=\"bear\"} 1"), "{metrics}");
    assert!(!metrics.contains("ml_model_loaded{model=\"fox\"}"), "{metrics}");

    // It comes back with its alias.
    put(&folder.path().join("fox"));
    wait_for_states(&address, &[("broken", "unloaded"), ("bear", "loaded"), ("fox", "unloaded")]);
    assert_eq!(says(&address, "gpt-4"), said);
    // One whose files are gone before the server looked is a 404, too.
    fs::remove_dir_all(folder.path().join("broken")).unwrap();
    thread::sleep(Duration::from_millis(1100));
    let chat = json!({"model": "broken", "messages": [{"role": "user", "content": FOX}]});
    assert_eq!(ask(&address, "POST", "/v1/chat/completions", &chat).0, 404);
    end(child);
}

/// An adapter of the demo model, in mlx-lm's layout, that changes what it says by `scale`.
fn adapter(scale: f32) -> TempDir {
    let config: Value =
        serde_json::from_str(&fs::read_to_string(format!("{DEMO}/config.json")).unwrap()).unwrap();
    let number = |name: &str| config[name].as_u64().unwrap() as usize;
    let folder = tempfile::tempdir().unwrap();
    let settings = json!({
        "fine_tune_type": "lora", "num_layers": 1, "lora_parameters": {"rank": 1, "scale": scale},
    });
    fs::write(folder.path().join("adapter_config.json"), settings.to_string()).unwrap();
    let (hidden, inner) = (number("hidden_size"), number("intermediate_size"));
    let factor = |count: usize| -> Vec<u8> {
        (0..count).flat_map(|at| ((at % 7) as f32 - 3.0).to_le_bytes()).collect()
    };
    let (a, b) = (factor(inner), factor(hidden));
    let view =
        |shape: [usize; 2], bytes| TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap();
    let module = "model.layers.0.mlp.down_proj";
    let factors = [
        (format!("{module}.lora_a"), view([inner, 1], &a)),
        (format!("{module}.lora_b"), view([1, hidden], &b)),
    ];
    let bytes = safetensors::serialize(factors, None).unwrap();
    fs::write(folder.path().join("adapters.safetensors"), bytes).unwrap();
    folder
}

#[test]
fn adapters_are_models_beside_the_one_without_them_and_share_no_prefix() {
    let (one, two) = (adapter(1.0), adapter(-2.0));
    let at = |name: &str, folder: &TempDir| format!("{name}={}", folder.path().display());
    let (first, second) = (at("one", &one), at("two", &two));
    let arguments = ["--model-name", "base", "--adapter", &first, "--adapter", &second];
    let (child, address) = serve(&arguments);
    wait_until_ready(&address);
    let names = [("base", "unloaded"), ("base:one", "unloaded"), ("base:two", "unloaded")];
    assert_eq!(states(&address), pairs(&names));
    let base = says(&address, "base");
    let alone = |folder: &TempDir| {
        let folder = folder.path().to_str().unwrap();
        let arguments = ["generate", "-q", "-t", "0", "-n", "8", "--adapter", folder, FOX];
        text(&ml(&arguments).stdout).trim_end_matches('\n').to_owned()
    };
    let expected = [alone(&one), alone(&two)];
    assert!(expected[0] != base && expected[1] != base && expected[0] != expected[1]);
    // The same prompt again and again: whoever had another's keys would say something else.
    for _ in 0..2 {
        assert_eq!([says(&address, "base:one"), says(&address, "two")], expected);
        assert_eq!(says(&address, "base"), base);
    }
    let (status, answer) =
        ask(&address, "POST", "/v1/chat/completions", &json!({"model": "three", "messages": []}));
    assert_eq!(status, 404, "{answer}");
    assert_eq!(get(&address, "/lora-adapters"), json!([]));
    end(child);
}
