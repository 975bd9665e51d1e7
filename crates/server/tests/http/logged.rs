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
    let secret = json!({"messages": [
        {"role": "user", "content": "secret"}, {"role": "assistant", "content": "secret"},
        {"role": "assistant", "content": "secret"},
    ]});
    assert_eq!(ask(&server, "log-prompt", chats, &secret).answer().status, 400);
    let line = &lines("log-prompt", 1)[0];
    assert!(!format!("{line:?}").contains("secret") && line.contains_key("error"), "{line:?}");
}

#[test]
fn an_answer_is_logged_with_its_tokens_and_a_stream_at_its_end_too() {
    let server = TestServer::start();
    let chats = "/v1/chat/completions";
    ask(&server, "log-whole", chats, &chat(json!({}))).answer();
    let line = &lines("log-whole", 1)[0];
    assert_eq!(line["generated_tokens"], "4");
    assert!(!line.contains_key("error") && line["prompt_tokens"] != "0", "{line:?}");

    ask(&server, "log-stream", chats, &chat(json!({"stream": true}))).answer();
    let both = lines("log-stream", 2);
    assert_eq!(both[0]["status"], "200");
    let (end, endpoint) = (&both[1], chats);
    assert_eq!((end["ended"].as_str(), end["endpoint"].as_str()), ("complete", endpoint));
    assert_eq!(end["generated_tokens"], "4");
    assert!(end.contains_key("milliseconds"), "{end:?}");
}

#[test]
fn a_stream_that_breaks_off_is_logged_as_one() {
    let failure = Some(inference_core::Error::Engine("device lost".into()));
    let server = TestServer::with(Fake { failure, ..Fake::says(&["fox"]) }, |_| {});
    let stream = chat(json!({"stream": true}));
    ask(&server, "log-failed", "/v1/chat/completions", &stream).answer();
    let end = &lines("log-failed", 2)[1];
    assert_eq!(end["ended"], "failed");
    assert!(end["error"].contains("device lost"), "{end:?}");

    let server = TestServer::with(Fake { endless: true, ..Fake::default() }, |_| {});
    let mut client = ask(&server, "log-left", "/v1/chat/completions", &stream);
    client.read_until("fox");
    drop(client);
    let end = &lines("log-left", 2)[1];
    assert_eq!(end["ended"], "the client left");
    assert_ne!(end["generated_tokens"], "0", "{end:?}");
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
