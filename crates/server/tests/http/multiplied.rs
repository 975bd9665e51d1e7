//! Nothing that a request says is multiplied, unpacked or compared without a bound.

use std::time::{Duration, Instant};

use fake_model::FakeModel as Fake;
use serde_json::{Value as Json, json};

use crate::TestServer;
use crate::client::Answer;
use crate::embeddings::with_services;

/// Longer than what is bounded takes, and shorter than what is not.
const LONG: Duration = Duration::from_secs(10);

fn refused(answer: &Answer) -> (u16, String) {
    (answer.status, answer.error("param"))
}

#[test]
fn a_text_beside_many_others_is_bounded_by_what_it_is_multiplied_to() {
    let server = with_services(Fake::default());
    let (long, many) = ("q".repeat(1 << 20), vec!["a"; 2000]);
    let ask = |path: &str, body: Json| refused(&server.post(path, &body));
    let rerank = |more: Json| ask("/v1/rerank", more);
    assert_eq!(rerank(json!({"query": long, "documents": many})), (400, "query".into()));
    let told = json!({"query": "q", "instruction": long, "documents": many});
    assert_eq!(rerank(told), (400, "instruction".into()));
    let embed = json!({"input": many, "prompt": long});
    assert_eq!(ask("/v1/embeddings", embed), (400, "prompt".into()));
    let tool = json!({"type": "custom", "name": "a"});
    let space =
        json!({"type": "namespace", "name": "n", "description": long, "tools": vec![tool; 50]});
    let body = json!({"input": "hi", "tools": [space]});
    assert_eq!(ask("/v1/responses", body), (400, "tools[0].tools".into()));
    let fits = json!({"query": "q".repeat(4000), "documents": many});
    assert_eq!(server.post("/v1/rerank", &fits).status, 200);
}

#[test]
fn stored_items_are_not_multiplied_by_references_to_them() {
    let mut fake = Fake::default();
    fake.info.context_length = 1 << 30;
    let server = TestServer::with(fake, |_| {});
    let said = json!({"input": [{"role": "user", "content": "x".repeat(1 << 20)}]});
    let id = server.post("/v1/responses", &said).json()["id"].as_str().unwrap().to_owned();
    let items = server.get(&format!("/v1/responses/{id}/input_items")).json();
    let item = items["data"][0]["id"].as_str().unwrap().to_owned();
    let ask = |times: usize| {
        let input: Vec<Json> = vec![json!({"type": "item_reference", "id": item}); times];
        server.post("/v1/responses/input_tokens", &json!({"input": input}))
    };
    assert_eq!(ask(2).status, 200);
    assert_eq!(refused(&ask(1000)), (400, "input".into()));
}

#[test]
fn tools_and_stop_strings_are_bounded_in_every_protocol() {
    let server = TestServer::with(Fake { calls: true, ..Fake::default() }, |_| {});
    let messages = json!([{"role": "user", "content": "hi"}]);
    let tools = |tool: fn(usize) -> Json| (0..2000).map(tool).collect::<Vec<_>>();
    let function = |at| json!({"type": "function", "function": {"name": format!("f{at}")}});
    let own = |at| json!({"name": format!("f{at}"), "input_schema": {"type": "object"}});
    let flat = |at| json!({"type": "function", "name": format!("f{at}")});
    let stop = "s".repeat(10_000);
    for (path, body, param) in [
        ("/v1/chat/completions", json!({"messages": messages, "tools": tools(function)}), "tools"),
        (
            "/v1/messages",
            json!({"model": "fake", "messages": messages, "max_tokens": 1, "tools": tools(own)}),
            "tools",
        ),
        ("/v1/responses", json!({"input": "hi", "tools": tools(flat)}), "tools"),
        (
            "/api/chat",
            json!({"model": "fake", "messages": messages, "tools": tools(function)}),
            "tools",
        ),
        ("/v1/chat/completions", json!({"messages": messages, "stop": stop}), "stop"),
        ("/v1/completions", json!({"prompt": "a", "stop": [stop]}), "stop"),
        (
            "/v1/messages",
            json!({"model": "fake", "messages": messages, "max_tokens": 1, "stop_sequences": [stop]}),
            "stop_sequences",
        ),
        (
            "/api/generate",
            json!({"model": "fake", "prompt": "a", "options": {"stop": [stop]}}),
            "options.stop",
        ),
    ] {
        let answer = server.post(path, &body);
        let json = answer.json();
        let told = json["param"].as_str().or(json["error"]["param"].as_str()).unwrap_or_default();
        let message =
            json["error"]["message"].as_str().or(json["error"].as_str()).unwrap_or_default();
        assert_eq!(answer.status, 400, "{path} {}", answer.text);
        assert!(told == param || message.contains(param), "{path}: {}", answer.text);
    }
}

#[test]
fn long_names_and_queries_take_no_time_and_are_not_told_whole() {
    let server = TestServer::start();
    let began = Instant::now();
    let answer = server.chat(json!({"model": "m".repeat(3 << 20)}));
    assert_eq!(refused(&answer), (404, "model".into()));
    let role = json!({"messages": [{"role": "r".repeat(3 << 20), "content": "a"}]});
    let other = server.post("/v1/chat/completions", &role);
    assert_eq!(refused(&other), (400, "messages[0].role".into()));
    assert!(answer.text.len() + other.text.len() < 20_000);
    let query: Vec<_> = (0..10_000).map(|at| format!("n{at}")).collect();
    assert_eq!(server.get(&format!("/v1/models?{}", query.join("&"))).status, 400);
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
}

#[test]
fn conversations_of_many_turns_take_no_time_of_their_square() {
    let strict = TestServer::with(Fake { strict: true, ..Fake::default() }, |_| {});
    let many = |role: &str| (0..40_000).map(|_| json!({"role": role, "content": "a"})).collect();
    let ask = |server: &TestServer, messages: Vec<Json>| {
        let began = Instant::now();
        let body = json!({"messages": messages});
        let answer = server.post("/apply-template", &body);
        assert!(answer.status == 200 || answer.status == 400, "{}", answer.text);
        let body = json!({"messages": body["messages"], "model": "fake"});
        server.post("/v1/messages/count_tokens", &body);
        assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    };
    ask(&strict, many("user"));
    ask(&TestServer::start(), many("system"));
    let chat = |server: &TestServer, role: &str| {
        let began = Instant::now();
        let messages: Vec<Json> = many(role);
        server.post("/v1/chat/completions", &json!({"messages": messages}));
        assert!(began.elapsed() < LONG, "{role}: {:?}", began.elapsed());
    };
    chat(&strict, "user");
    chat(&TestServer::start(), "system");
}
