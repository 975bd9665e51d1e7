//! Models that stay for as long as requests say, and streams that are kept alive while they wait
//! for one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use inference_core::Error;
use serde_json::{Value as Json, json};

use super::{JSON, models, send, started, told, wait_for};
use crate::TestServer;
use crate::client::Client;

#[test]
fn a_model_stays_for_as_long_as_a_request_of_ollamas_says() {
    let (server, loads) = started(4, 1);
    let ask = |model: &str, keep: Json| {
        let message = json!({"role": "user", "content": "hi"});
        let body =
            json!({"model": model, "messages": [message], "keep_alive": keep, "stream": false});
        let answer = server.post("/api/chat", &body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    };
    assert_eq!(ask("one", json!("100ms"))["message"]["content"], "one");
    wait_for("unloading", || told(&server, "state")[1] == "unloaded");
    // Left out, it is as the server has it: for ever.
    ask("one", json!(null));
    ask("two:latest", json!(0));
    wait_for("unloading", || told(&server, "state")[2] == "unloaded");
    assert_eq!(told(&server, "state")[1], "loaded");
    ask("three", json!("5m"));
    let running = server.get("/api/ps").json();
    let names: Vec<_> = running["models"].as_array().unwrap().iter().map(|m| &m["name"]).collect();
    assert_eq!(names, ["one", "three"], "{running}");
    assert!(running["models"][0]["expires_at"].as_str().unwrap().starts_with("9999-"));
    assert!(
        !running["models"][1]["expires_at"].as_str().unwrap().starts_with("9999-"),
        "{running}"
    );
    let say_nothing = |keep: Json| {
        let body = json!({"model": "three", "keep_alive": keep});
        server.post("/api/generate", &body).json()["done_reason"].clone()
    };
    assert_eq!(say_nothing(json!(0)), "unload");
    wait_for("unloading", || told(&server, "state")[3] == "unloaded");
    assert_eq!(say_nothing(json!(-1)), "load");
    assert_eq!(told(&server, "state")[3], "loaded");
    assert_eq!(loads.done(), [1, 1, 2, 3, 3]);
}

#[test]
fn a_stream_that_waits_for_a_load_is_kept_alive_and_a_failure_is_its_event() {
    let (models, loads) = models(4, 1);
    let keep_alive = Duration::from_millis(30);
    let server = TestServer::many(models, |config| config.timeouts.keep_alive = keep_alive);
    loads.held.store(true, Ordering::SeqCst);
    let mut stream = send(&server, "one", json!({"stream": true}));
    let begun = stream.read_until(": waiting\n\n");
    assert!(begun.starts_with("HTTP/1.1 200") && begun.contains("text/event-stream"), "{begun}");
    let mut other = send(&server, "two", json!({"stream": true}));
    other.read_until(": waiting\n\n");
    let whole = send(&server, "one", json!({}));
    loads.held.store(false, Ordering::SeqCst);
    let rest = stream.read_until("[DONE]");
    assert!(rest.contains("\"content\":\"one\""), "{rest}");
    assert_eq!(whole.answer().status, 200);
    assert!(other.read_until("[DONE]").contains("\"content\":\"two\""));

    loads.held.store(true, Ordering::SeqCst);
    *loads.failure.lock().unwrap() = Some(Error::Engine("no".into()));
    let message = json!({"role": "user", "content": "hi"});
    let body = json!({"model": "three", "max_tokens": 5, "messages": [message], "stream": true});
    let mut failing = Client::connect(server.address);
    failing.send("POST", "/v1/messages", &[JSON], &body.to_string());
    failing.read_until(": waiting\n\n");
    let mut last = send(&server, "three", json!({"stream": true}));
    last.read_until(": waiting\n\n");
    loads.held.store(false, Ordering::SeqCst);
    let told = failing.read_until("cannot be loaded");
    assert!(told.contains("event: error\ndata: {\"type\":\"error\""), "{told}");
    assert!(last.read_until("cannot be loaded").contains("data: {\"error\":"));
}
