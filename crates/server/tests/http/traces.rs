//! Spans of requests, as a collector gets them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use fake_model::FakeModel as Fake;
use inference_server::{Config, Traces};
use serde_json::{Value as Json, json};

use crate::client::Client;
use crate::{TestServer, chat};

const CHATS: &str = "/v1/chat/completions";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const REFUSAL: &str = r#"{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "no"}}"#;
const REASONS: &str = "gen_ai.response.finish_reasons";
const PATIENCE: Duration = Duration::from_secs(30);

/// A collector that gives these answers in turn, and the last one from then on.
struct Collector {
    address: SocketAddr,
    bodies: Receiver<Json>,
}

impl Collector {
    fn new(answers: &'static [(u16, &'static str)]) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (send, bodies) = channel();
        thread::spawn(move || {
            for (count, stream) in listener.incoming().enumerate() {
                let mut reader = BufReader::new(stream.unwrap());
                let mut lines = Vec::new();
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    match line.trim_end() {
                        "" => break,
                        line => lines.push(line.to_ascii_lowercase()),
                    }
                }
                assert_eq!(lines[0], "post /v1/traces http/1.1");
                assert!(lines.contains(&"content-type: application/json".to_owned()), "{lines:?}");
                let length = lines.iter().find_map(|line| line.strip_prefix("content-length: "));
                let mut body = vec![0; length.unwrap().parse().unwrap()];
                reader.read_exact(&mut body).unwrap();
                let (status, answer) = answers[count.min(answers.len() - 1)];
                let length = answer.len();
                let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n");
                reader.get_mut().write_all((head + answer).as_bytes()).unwrap();
                if send.send(serde_json::from_slice(&body).unwrap()).is_err() {
                    return;
                }
            }
        });
        Collector { address, bodies }
    }

    /// Lets a server of `config` send its spans here.
    fn traces(&self, config: &mut Config) {
        let endpoint = format!("http://{}", self.address).parse().unwrap();
        let every = Duration::from_millis(5);
        config.traces = Some(Traces { every, ..Traces::new(endpoint, "fox") });
    }

    /// The next `count` spans. Those of a request come together.
    fn spans(&self, count: usize) -> Vec<Json> {
        let mut spans = Vec::new();
        while spans.len() < count {
            let body = self.bodies.recv_timeout(PATIENCE).unwrap();
            let resource = &body["resourceSpans"][0];
            let service = json!({"key": "service.name", "value": {"stringValue": "fox"}});
            assert_eq!(resource["resource"]["attributes"][0], service);
            spans.extend(resource["scopeSpans"][0]["spans"].as_array().unwrap().iter().cloned());
        }
        assert_eq!(spans.len(), count, "{spans:?}");
        spans
    }
}

/// The attribute `key` of `span`, without its type.
fn attribute(span: &Json, key: &str) -> Json {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    let value = found.and_then(|found| found["value"].as_object()?.values().next());
    value.cloned().unwrap_or_default()
}

/// The attribute of one generation's end.
fn reasons(only: &str) -> Json {
    json!({"values": [{"stringValue": only}]})
}

fn time(span: &Json, which: &str) -> u64 {
    span[which].as_str().unwrap().parse().unwrap()
}

fn names(spans: &[Json]) -> Vec<&str> {
    spans.iter().map(|span| span["name"].as_str().unwrap()).collect()
}

/// The value of a counter in `/metrics`.
fn counter(server: &TestServer, name: &str) -> u64 {
    let text = server.get("/metrics").text;
    let value = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    value.unwrap_or_else(|| panic!("no {name}: {text}")).parse().unwrap()
}

/// Waits until a counter has this value.
fn count_is(server: &TestServer, name: &str, value: u64) {
    let begun = Instant::now();
    while counter(server, name) != value {
        assert!(begun.elapsed() < PATIENCE, "{name}: {}", counter(server, name));
        thread::sleep(Duration::from_millis(2));
    }
}

/// Checks that all but the first of `spans` are parts of it, one after the other.
fn follow_each_other(spans: &[Json]) {
    let request = &spans[0];
    let mut before = time(request, "startTimeUnixNano");
    for span in &spans[1..] {
        assert_eq!(span["traceId"], request["traceId"]);
        assert_eq!(span["parentSpanId"], request["spanId"]);
        assert!(time(span, "startTimeUnixNano") >= before, "{spans:?}");
        before = time(span, "endTimeUnixNano");
        assert!(before >= time(span, "startTimeUnixNano"), "{spans:?}");
    }
    assert!(before <= time(request, "endTimeUnixNano"), "{spans:?}");
}

#[test]
fn a_request_is_a_span_of_its_clients_trace_with_its_phases_below() {
    let collector = Collector::new(&[(200, "{}")]);
    let slow = Fake { delay: Duration::from_millis(1), ..Fake::default() };
    let server = TestServer::with(slow, |config| collector.traces(config));
    for body in [json!({"temperature": 0.5, "max_tokens": 9}), json!({"stream": true})] {
        let mut client = Client::connect(server.address);
        let headers = [
            ("content-type", "application/json"),
            ("x-request-id", "span-1"),
            ("traceparent", PARENT),
            ("tracestate", "a=1"),
        ];
        client.send("POST", CHATS, &headers, &chat(body.clone()).to_string());
        assert_eq!(client.answer().status, 200);
        let spans = collector.spans(4);
        assert_eq!(names(&spans), ["POST /v1/chat/completions", "queue", "prompt", "decode"]);
        let request = &spans[0];
        assert_eq!(request["traceId"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(
            (&request["parentSpanId"], &request["kind"]),
            (&json!("b7ad6b7169203331"), &json!(2))
        );
        assert_eq!((&request["traceState"], &request["status"]), (&json!("a=1"), &Json::Null));
        for (key, value) in [
            ("http.route", json!(CHATS)),
            ("http.response.status_code", json!("200")),
            ("http.response.header.x-request-id", json!({"values": [{"stringValue": "span-1"}]})),
            ("gen_ai.operation.name", json!("chat")),
            ("gen_ai.request.model", json!("fake")),
            ("gen_ai.response.model", json!("fake")),
            ("gen_ai.usage.output_tokens", json!("4")),
            ("gen_ai.usage.cache_read.input_tokens", json!("1")),
        ] {
            assert_eq!(attribute(request, key), value, "{key}: {request}");
        }
        assert_ne!(attribute(request, "gen_ai.usage.input_tokens"), json!("0"));
        let drawn = ["gen_ai.request.temperature", "gen_ai.request.max_tokens"];
        let expected = [body["temperature"].clone(), body["max_tokens"].clone()];
        let told = drawn.map(|key| attribute(request, key));
        assert_eq!(told[0], expected[0]);
        assert_eq!(
            told[1],
            expected[1].as_u64().map_or(Json::Null, |most| json!(most.to_string()))
        );
        assert!(!request.to_string().contains("hi\""), "prompts are never told: {request}");
        follow_each_other(&spans);
    }
    count_is(&server, "ml_trace_spans_sent_total", 8);
    assert_eq!(counter(&server, "ml_trace_spans_lost_total"), 0);
}

#[test]
fn a_trace_begins_here_unless_its_client_does_not_record_it() {
    let collector = Collector::new(&[(200, "{}")]);
    let server = TestServer::with(Fake::default(), |config| collector.traces(config));
    let unsampled = PARENT.replace("-01", "-00");
    for (header, path) in
        [(unsampled.as_str(), "/v1/models"), (PARENT, "/health"), ("x", "/version")]
    {
        Client::connect(server.address).request("GET", path, &[("traceparent", header)], "");
    }
    let span = &collector.spans(1)[0];
    assert_eq!((&span["name"], &span["parentSpanId"]), (&json!("GET /version"), &Json::Null));
    let trace = span["traceId"].as_str().unwrap();
    assert!(trace.len() == 32 && trace != "0af7651916cd43dd8448eb211c80319c", "{trace}");
    assert_eq!(attribute(span, "gen_ai.provider.name"), Json::Null);
}

#[test]
fn what_fails_and_who_leaves_is_told() {
    let collector = Collector::new(&[(200, "{}")]);
    let failure = Some(inference_core::Error::Engine("device lost".into()));
    let fake = Fake { failure, ..Fake::says(&["fox"]) };
    let server = TestServer::with(fake, |config| collector.traces(config));
    server.chat(json!({}));
    let span = &collector.spans(4)[0];
    assert_eq!(span["status"]["code"], 2);
    assert!(span["status"]["message"].as_str().unwrap().contains("device lost"), "{span}");
    assert_eq!(attribute(span, "error.type"), json!("500"));
    server.chat(json!({"stream": true}));
    let span = &collector.spans(4)[0];
    assert_eq!(
        (&span["status"]["code"], attribute(span, "ml.ended")),
        (&json!(2), json!("failed"))
    );
    assert_eq!(server.get("/v1/secrets").status, 404);
    let span = &collector.spans(1)[0];
    assert_eq!((&span["name"], &span["status"]), (&json!("GET"), &Json::Null));
    assert_eq!(attribute(span, "url.path"), json!("/v1/secrets"));

    let endless = Fake { endless: true, ..Fake::default() };
    let server = TestServer::with(endless, |config| collector.traces(config));
    let mut client = Client::connect(server.address);
    let headers = [("content-type", "application/json")];
    client.send("POST", CHATS, &headers, &chat(json!({"stream": true})).to_string());
    client.read_until("fox");
    drop(client);
    let spans = collector.spans(4);
    assert_eq!(names(&spans)[1..], ["queue", "prompt", "decode"]);
    assert_eq!(attribute(&spans[0], "ml.ended"), json!("the client left"));
    assert_eq!(attribute(&spans[0], REASONS), Json::Null, "it did not end by itself");
    assert_ne!(attribute(&spans[0], "gen_ai.usage.output_tokens"), json!("0"));
}

#[test]
fn what_the_server_ends_early_has_a_reason_and_its_wait() {
    let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    let one_call = json!({
        "parallel_tool_calls": false,
        "tools": [{"type": "function", "function": {"name": "f"}}],
    });
    for (says, more) in [([call, call], one_call), (["fox", " ran"], json!({"stop": " ran"}))] {
        let collector = Collector::new(&[(200, "{}")]);
        let fake = Fake { calls: true, ..Fake::says(&says) };
        let server = TestServer::with(fake, |config| collector.traces(config));
        let answer = server.chat(more.clone());
        assert_eq!(answer.status, 200, "{}", answer.text);
        let spans = collector.spans(4);
        assert_eq!(names(&spans)[1..], ["queue", "prompt", "decode"], "{more}");
        assert_eq!(attribute(&spans[0], REASONS), reasons("stop"), "{more}");
        follow_each_other(&spans);
    }

    let collector = Collector::new(&[(200, "{}")]);
    let endless = Fake { endless: true, ..Fake::default() };
    let mut server = TestServer::with(endless, |config| {
        collector.traces(config);
        config.timeouts.drain = Duration::from_secs(1);
    });
    let mut client = Client::connect(server.address);
    let headers = [("content-type", "application/json")];
    client.send("POST", CHATS, &headers, &chat(json!({"stream": true})).to_string());
    client.read_until("fox");
    server.shut_down();
    server.join().unwrap();
    let spans = collector.spans(4);
    assert_eq!(names(&spans)[1..], ["queue", "prompt", "decode"]);
    assert_eq!(attribute(&spans[0], REASONS), reasons("length"));
}

#[test]
fn spans_that_a_collector_refuses_are_counted_and_those_that_it_may_take_are_sent_again() {
    let collector = Collector::new(&[(503, ""), (200, REFUSAL), (400, ""), (200, "{}")]);
    let server = TestServer::with(Fake::default(), |config| collector.traces(config));
    server.chat(json!({}));
    let first = collector.spans(4);
    assert_eq!(collector.spans(4), first, "sent again");
    count_is(&server, "ml_trace_spans_lost_total", 1);
    assert_eq!(counter(&server, "ml_trace_spans_sent_total"), 3);
    // What is refused for ever is not sent again.
    server.get("/version");
    assert_eq!(names(&collector.spans(1)), ["GET /version"]);
    count_is(&server, "ml_trace_spans_lost_total", 2);
    server.get("/v1/models");
    assert_eq!(names(&collector.spans(1)), ["GET /v1/models"]);
    count_is(&server, "ml_trace_spans_sent_total", 4);
}

#[test]
fn a_collector_that_is_down_costs_nothing_but_its_spans() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = TestServer::with(Fake::default(), |config| {
        let endpoint = format!("http://{closed}").parse().unwrap();
        let every = Duration::from_millis(5);
        config.traces = Some(Traces { every, ..Traces::new(endpoint, "fox") });
    });
    assert_eq!(server.chat(json!({})).status, 200);
    count_is(&server, "ml_trace_spans_lost_total", 4);
    assert_eq!(counter(&server, "ml_trace_spans_sent_total"), 0);
}

#[test]
fn spans_that_wait_are_sent_as_the_server_ends() {
    let collector = Collector::new(&[(200, "{}")]);
    let mut server = TestServer::with(Fake::default(), |config| {
        collector.traces(config);
        if let Some(traces) = &mut config.traces {
            traces.every = Duration::from_secs(3600);
        }
    });
    server.get("/version");
    server.shut_down();
    server.join().unwrap();
    assert_eq!(names(&collector.spans(1)), ["GET /version"]);
}
