//! A fault inside the server is the fault of one request.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Client;
use crate::{TestServer, chat};
use fake_model::FakeModel as Fake;

const JSON: (&str, &str) = ("content-type", "application/json");

/// A server on a model that takes a while, so that one stream outlasts other requests.
fn server() -> TestServer {
    let fake = Fake { says: vec!["a"; 150], delay: Duration::from_millis(2), ..Fake::default() };
    TestServer::with(fake, |_| {})
}

fn stream(server: &TestServer, path: &str, body: &serde_json::Value) -> Client {
    let mut client = Client::connect(server.address);
    client.send("POST", path, &[JSON], &body.to_string());
    client
}

fn panics(server: &TestServer, method: &'static str) {
    *server.model.panics.lock().unwrap() = method;
}

/// Nothing is held and no connection is open but the one that asks.
fn wait_until_idle(server: &TestServer) {
    let begun = Instant::now();
    loop {
        let held = server.get("/health").json()["held"].clone();
        let metrics = server.get("/metrics").text;
        if held == 0 && metrics.contains("ml_num_connections 1\n") {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{held} held\n{metrics}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_panic_is_that_requests_500_and_the_others_go_on() {
    let server = server();
    let completion = json!({"prompt": "a"});
    for (method, path, body) in [
        ("capabilities", "/v1/chat/completions", chat(json!({}))),
        ("capabilities", "/v1/completions", completion.clone()),
        ("capabilities", "/v1/models", json!(null)),
        ("render_chat", "/v1/chat/completions", chat(json!({}))),
        ("render_chat", "/apply-template", chat(json!({}))),
        ("encode", "/tokenize", json!({"prompt": "a"})),
        ("encode", "/v1/completions", completion.clone()),
        ("encode", "/v1/classify", json!({"input": "a"})),
        ("decode", "/detokenize", json!({"tokens": [65]})),
        ("generate", "/v1/chat/completions", chat(json!({"regex": "a"}))),
        ("generate", "/v1/chat/completions", chat(json!({"n": 3, "stream": true}))),
        ("decode", "/v1/completions", json!({"prompt": "a", "logprobs": 1})),
    ] {
        let mut other = stream(&server, "/v1/chat/completions", &chat(json!({"stream": true})));
        other.read_until("\"content\":\"a\"");
        panics(&server, method);
        let answer = match body.is_null() {
            true => server.get(path),
            false => server.post(path, &body),
        };
        panics(&server, "");
        assert_eq!(answer.status, 500, "{method} {path}: {}", answer.text);
        assert_eq!(answer.error("code"), "internal_error", "{method} {path}");
        let rest = other.read_until("[DONE]");
        assert!(rest.contains("\"finish_reason\":\"stop\""), "{method} {path}: {rest}");
        drop(other);
        wait_until_idle(&server);
    }
    assert_eq!(server.chat(json!({})).status, 200);
}

#[test]
fn a_panic_in_the_middle_of_a_stream_ends_it_with_an_error() {
    let server = server();
    let body = json!({"prompt": "a", "max_tokens": 400, "logprobs": 1, "stream": true});
    let mut broken = stream(&server, "/v1/completions", &body);
    broken.read_until("\"text\":\"a\"");
    panics(&server, "decode");
    let rest = broken.read_until("\"internal_error\"");
    panics(&server, "");
    assert!(!rest.contains("[DONE]"), "{rest}");
    wait_until_idle(&server);
    assert_eq!(server.chat(json!({})).status, 200);
}

#[test]
fn an_engine_that_panics_fails_what_ran_and_nothing_else() {
    let server = server();
    let mut broken = stream(&server, "/v1/chat/completions", &chat(json!({"stream": true})));
    let whole = stream(&server, "/v1/chat/completions", &chat(json!({})));
    broken.read_until("\"content\":\"a\"");
    panics(&server, "step");
    broken.read_until("\"internal_error\"");
    let whole = whole.answer();
    panics(&server, "");
    assert_eq!((whole.status, whole.error("code").as_str()), (500, "internal_error"));
    drop(broken);
    wait_until_idle(&server);
    assert_eq!(server.chat(json!({})).status, 200);
}

#[test]
fn text_work_whose_client_has_left_still_counts() {
    let fake = Fake { encodes: Duration::from_millis(100), ..Fake::default() };
    let server = TestServer::with(fake, |config| config.limits.waiting = 7);
    let body = json!({"prompt": "a"}).to_string();
    let cores = std::thread::available_parallelism().map_or(1, usize::from).max(2);
    let mut begun = 0;
    for _ in 0..10 * cores {
        let mut client = Client::connect(server.address);
        client.send("POST", "/v1/completions", &[JSON], &body);
        std::thread::sleep(Duration::from_millis(10));
        drop(client);
        begun += server.model.encoding.load(Ordering::SeqCst);
    }
    assert!(begun > 0, "the clients left before anything began");
    let most = server.model.most_encoding.load(Ordering::SeqCst);
    assert!(most <= cores, "{most} texts at once on {cores} cores");
    wait_until_idle(&server);
}

#[test]
fn long_texts_leave_room_for_short_ones() {
    let fake = Fake { encodes: Duration::from_millis(200), ..Fake::default() };
    let server = TestServer::with(fake, |_| {});
    let cores = std::thread::available_parallelism().map_or(1, usize::from).max(2);
    let long = json!({"prompt": "a".repeat(70_000)}).to_string();
    let mut clients: Vec<_> = (0..4 * cores).map(|_| Client::connect(server.address)).collect();
    for client in &mut clients {
        client.send("POST", "/tokenize", &[JSON], &long);
    }
    std::thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    assert_eq!(server.post("/tokenize", &json!({"prompt": "a"})).status, 200);
    // One text's time, and not that of all before it.
    assert!(begun.elapsed() < Duration::from_millis(700), "{:?}", begun.elapsed());
    for client in clients {
        assert_eq!(client.answer().status, 200);
    }
}
