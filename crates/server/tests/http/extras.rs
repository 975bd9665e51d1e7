//! The endpoints that OpenAI does not have, and the models' list.

use serde_json::{Value as Json, json};

use crate::TestServer;
use crate::client::Client;
use fake_model::FakeModel as Fake;

#[test]
fn text_becomes_ids_and_text_again() {
    let server = TestServer::start();
    let tokens = json!({"tokens": [104, 105], "count": 2, "max_model_len": 4096});
    assert_eq!(server.post("/tokenize", &json!({"prompt": "hi"})).json(), tokens);
    assert_eq!(server.post("/tokenize", &json!({"content": "hi"})).json(), tokens);
    let text = server.post("/detokenize", &json!({"tokens": [104, 105]})).json();
    assert_eq!(text, json!({"prompt": "hi", "content": "hi"}));
    let special = server.post("/detokenize", &json!({"tokens": [104, 7, 105]})).json();
    assert_eq!(special["content"], "h<special>i");
    for body in [json!({}), json!({"prompt": "a", "content": "b"})] {
        assert_eq!(server.post("/tokenize", &body).error("param"), "prompt");
    }
    let answer = server.post("/tokenize", &json!({"prompt": "a", "tools": [1]}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "tools"));
}

#[test]
fn conversations_become_prompts() {
    let server = TestServer::start();
    let body = json!({"messages": [{"role": "user", "content": "hi"}]});
    let rendered = server.post("/apply-template", &body).json();
    assert_eq!(rendered["prompt"], "<user>hi");
    let tokens = server.post("/tokenize", &body).json();
    assert_eq!((&tokens["tokens"], &tokens["count"]), (&rendered["tokens"], &json!(8)));
    assert_eq!(server.post("/apply-template", &json!({})).error("param"), "messages");
}

#[test]
fn labels_are_ranked() {
    let server = TestServer::start();
    let body = json!({"input": ["good", [98, 97, 100]], "labels": ["yes", "no"]});
    let json = server.post("/v1/classify", &body).json();
    assert_eq!(json["data"].as_array().unwrap().len(), 2);
    let entry = &json["data"][0];
    assert_eq!(entry["label"], "yes");
    assert_eq!(entry["token"], json!({"id": 1000, "text": "The", "logprob": -0.5}));
    assert_eq!(entry["labels"][1], json!({"label": "no", "logprob": -2.0, "tokens": 1}));
    let sum: f64 = entry["probs"].as_array().unwrap().iter().filter_map(Json::as_f64).sum();
    assert!((sum - 1.0).abs() < 1e-9);
    assert_eq!(json["usage"]["prompt_tokens"], 7);
    let plain = server.post("/v1/classify", &json!({"input": "good"})).json();
    assert_eq!(plain["data"][0].get("label"), None);
    let empty = server.post("/v1/classify", &json!({"input": "a", "labels": [""]}));
    assert_eq!((empty.status, empty.error("param").as_str()), (400, "labels"));
}

#[test]
fn attention_is_shown_in_shapes_and_values() {
    let server = TestServer::start();
    let shapes = server.post("/v1/inspect", &json!({"prompt": "abc"})).json();
    assert_eq!((&shapes["seq_len"], shapes["layers"].as_array().unwrap().len()), (&json!(3), 2));
    assert_eq!(shapes["layers"][0].get("keys"), None);
    let body = json!({"prompt": [1, 2], "layers": [1], "values": true});
    let values = server.post("/v1/inspect", &body).json();
    assert_eq!(values["layers"][0]["layer"], 1);
    assert_eq!(values["layers"][0]["keys"], json!([1.0, 1.0]));
    assert_eq!(values["layers"][0]["queries"].as_array().unwrap().len(), 4);
    assert_eq!(values["layers"][0].get("weights"), None);
    let body = json!({"prompt": [1, 2], "layers": [1, 0], "values": true, "weights": true});
    let weights = server.post("/v1/inspect", &body).json();
    assert_eq!(
        (&weights["layers"][0]["layer"], &weights["layers"][1]["layer"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(weights["layers"][0]["weights"], json!(vec![0.25; 8]));
    assert_eq!(weights["layers"][0]["entropy"], json!(vec![0.5; 4]));
    let twice = server.post("/v1/inspect", &json!({"prompt": "a", "layers": [1, 1]}));
    assert_eq!((twice.status, twice.error("param").as_str()), (400, "layers"));
    let beyond = server.post("/v1/inspect", &json!({"prompt": "a", "layers": [2]}));
    assert_eq!((beyond.status, beyond.error("param").as_str()), (400, "layers"));
}

#[test]
fn too_many_values_and_a_model_without_attention_are_named() {
    let server = TestServer::with(Fake::default(), |config| config.limits.inspect_values = 8);
    let answer = server.post("/v1/inspect", &json!({"prompt": "abc", "values": true}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "layers"));
    let server = TestServer::with(Fake { inspects: false, ..Fake::default() }, |_| {});
    let answer = server.post("/v1/inspect", &json!({"prompt": "abc"}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "model"));
}

#[test]
fn the_served_model_tells_what_it_honours() {
    let server = TestServer::with(Fake::default(), |config| {
        config.model = "owner/fox".into();
        config.aliases = vec!["gpt-4o".into()];
    });
    let list = server.get("/v1/models").json();
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&json!("list"), &json!("owner/fox")));
    let one = server.get("/v1/models/owner/fox").json();
    assert_eq!(one, list["data"][0]);
    assert_eq!(one["capabilities"]["chat"], json!({"supported": true}));
    assert_eq!(one["info"]["architecture"], "fake");
    assert_eq!(server.get("/v1/models/gpt-4o").json()["id"], "owner/fox");
    let other = server.get("/v1/models/x");
    assert_eq!((other.status, other.error("code").as_str()), (404, "model_not_found"));
    assert_eq!(server.chat(json!({"model": "gpt-4o"})).status, 200);
    let other = server.chat(json!({"model": "gpt-5"}));
    assert_eq!((other.status, other.error("param").as_str()), (404, "model"));
}

#[test]
fn the_page_and_its_files_are_there() {
    let server = TestServer::start();
    let page = server.get("/");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("script-src 'self';"), "{policy}");
    for (path, media_type, part) in [
        ("/page/main.js", "text/javascript; charset=utf-8", "import"),
        ("/page/answers.js", "text/javascript; charset=utf-8", "v1/chat/completions"),
        ("/page/style.css", "text/css; charset=utf-8", "--paper"),
        ("/page/vendor/katex/LICENSE", "text/plain; charset=utf-8", "MIT"),
    ] {
        let file = server.get(path);
        assert_eq!((file.status, file.header("content-type")), (200, Some(media_type)), "{path}");
        assert_eq!(file.header("content-security-policy"), Some(policy), "{path}");
        assert!(file.text.contains(part), "{path}");
        let tag = file.header("etag").unwrap();
        let again =
            Client::connect(server.address).request("GET", path, &[("if-none-match", tag)], "");
        assert_eq!((again.status, again.text.as_str()), (304, ""), "{path}");
    }
    for path in ["/page/nothing.js", "/page/", "/page", "/page/../Cargo.toml"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
}
