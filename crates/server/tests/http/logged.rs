//! The log: why a request failed, and how a stream ended.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use fake_model::FakeModel as Fake;
use serde_json::{Value as Json, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::client::Client;
use crate::{TestServer, chat};

type Line = BTreeMap<String, String>;

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

/// Keeps the fields of all events of this process.
struct Kept;

struct Fields(Line);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl Subscriber for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        ["access", "server"].contains(&metadata.target())
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Line::new());
        event.record(&mut fields);
        LINES.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The lines of the request `id`, once there are so many.
fn lines(id: &str, count: usize) -> Vec<Line> {
    loop {
        let lines = LINES.lock().unwrap();
        let own: Vec<_> = lines
            .iter()
            .filter(|line| line.get("id").is_some_and(|own| own == id))
            .cloned()
            .collect();
        drop(lines);
        if own.len() >= count {
            return own;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn ask(server: &TestServer, id: &str, path: &str, body: &Json) -> Client {
    static KEPT: OnceLock<()> = OnceLock::new();
    KEPT.get_or_init(|| tracing::subscriber::set_global_default(Kept).unwrap());
    let mut client = Client::connect(server.address);
    let headers = [("content-type", "application/json"), ("x-request-id", id)];
    client.send("POST", path, &headers, &body.to_string());
    client
}

#[test]
fn a_failed_request_is_logged_with_its_reason_and_without_prompts() {
    let server = TestServer::with(Fake { strict: true, ..Fake::default() }, |_| {});
    let chats = "/v1/chat/completions";
    ask(&server, "log-400", chats, &chat(json!({"top_p": 7}))).answer();
    let line = &lines("log-400", 1)[0];
    assert_eq!(line["status"], "400");
    assert!(line["error"].contains("`top_p`"), "{line:?}");
    ask(&server, "log-404", "/v1/secrets", &json!({})).answer();
    let line = &lines("log-404", 1)[0];
    assert_eq!((line["endpoint"].as_str(), line["status"].as_str()), ("other", "404"));
    assert!(line["error"].contains("/v1/secrets"), "{line:?}");
    assert_eq!(line["path"], "/v1/secrets");
    let secret = json!({"messages": [
        {"role": "user", "content": "secret"}, {"role": "assistant", "content": "secret"},
        {"role": "assistant", "content": "secret"},
    ]});
    assert_eq!(ask(&server, "log-prompt", chats, &secret).answer().status, 400);
    let line = &lines("log-prompt", 1)[0];
    assert!(!format!("{line:?}").contains("secret") && line.contains_key("error"), "{line:?}");
}

#[test]
fn an_answer_is_logged_as_it_ends_with_what_it_took() {
    // A quick machine answers within a millisecond.
    let slow = Fake { delay: Duration::from_millis(1), ..Fake::default() };
    let server = TestServer::with(slow, |_| {});
    let chats = "/v1/chat/completions";
    for (id, body) in [("log-whole", json!({})), ("log-stream", json!({"stream": true}))] {
        ask(&server, id, chats, &chat(body.clone())).answer();
        let own = lines(id, 1);
        let line = &own[0];
        assert_eq!((line["endpoint"].as_str(), line["status"].as_str()), (chats, "200"));
        assert_eq!((line["generated_tokens"].as_str(), line["cached_tokens"].as_str()), ("4", "1"));
        assert!(!line.contains_key("error") && !line.contains_key("path"), "{line:?}");
        for field in ["prompt_tokens", "milliseconds", "model", "prompt_tokens_per_second"] {
            assert!(line.contains_key(field) && line[field] != "0", "{field}: {line:?}");
        }
        assert_eq!(line["generated_tokens_per_second"], "12.0");
        let ended = body["stream"].as_bool().map(|_| "complete");
        assert_eq!(line.get("ended").map(String::as_str), ended);
    }
}

#[test]
fn a_stream_that_breaks_off_is_logged_as_one() {
    let failure = Some(inference_core::Error::Engine("device lost".into()));
    let server = TestServer::with(Fake { failure, ..Fake::says(&["fox"]) }, |_| {});
    let stream = chat(json!({"stream": true}));
    ask(&server, "log-failed", "/v1/chat/completions", &stream).answer();
    let end = &lines("log-failed", 1)[0];
    assert_eq!(end["ended"], "failed");
    assert!(end["error"].contains("device lost"), "{end:?}");
}

#[test]
fn a_client_that_leaves_is_logged_with_what_was_computed_for_it() {
    let server = TestServer::with(Fake { endless: true, ..Fake::default() }, |_| {});
    let mut client =
        ask(&server, "log-left", "/v1/chat/completions", &chat(json!({"stream": true})));
    client.read_until("fox");
    drop(client);
    let line = &lines("log-left", 1)[0];
    assert_eq!((line["ended"].as_str(), line["status"].as_str()), ("the client left", "200"));
    assert_ne!(line["generated_tokens"], "0", "{line:?}");

    // One that waits for the whole answer has no status.
    let client = ask(&server, "log-gone", "/v1/chat/completions", &chat(json!({})));
    while server.get("/health").json()["held"] == 0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(client);
    let line = &lines("log-gone", 1)[0];
    assert_eq!(line["ended"], "the client left");
    assert!(!line.contains_key("status") && line.contains_key("model"), "{line:?}");
}

#[test]
fn an_end_that_waits_for_requests_is_logged() {
    let slow = Fake { delay: Duration::from_millis(100), ..Fake::says(&["fox"; 8]) };
    let mut server =
        TestServer::with(slow, |config| config.timeouts.drain = Duration::from_secs(77));
    let mut client =
        ask(&server, "log-ending", "/v1/chat/completions", &chat(json!({"stream": true})));
    client.read_until("fox");
    server.shut_down();
    server.join().unwrap();
    let lines = LINES.lock().unwrap();
    let ending = lines.iter().find(|line| line.get("seconds").is_some_and(|own| own == "77"));
    assert_eq!(ending.map(|line| line["running"].as_str()), Some("1"), "{lines:?}");
}
