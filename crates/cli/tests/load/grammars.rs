//! Schemas, expressions and grammars that are wrong, or would cost too much, several at once: each
//! is refused with its field's name, or answered, and meanwhile the server answers others.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::client::chat;
use crate::server::Server;
use crate::{alone, percentile};

/// Requests at once; more than grammars that are compiled at once.
const TOGETHER: usize = 6;

/// A compilation is given up after 10 s, and waits at most as long before it begins.
const PATIENCE: Duration = Duration::from_secs(25);

/// 100 ms on an idle machine; here, what asks and the engine take the same cores.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The expected fate of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Refused,
    /// It may be answered or refused: what it costs is found out on the way.
    Bounded,
}
use Fate::{Bounded, Refused};

fn numbered(count: usize, entry: impl Fn(usize) -> String) -> String {
    (0..count).map(entry).collect()
}

/// `inner` in `levels` layers of `outer`, which holds it at its `@`.
fn nested(levels: usize, outer: &str, inner: &str) -> String {
    let (before, after) = outer.split_once('@').unwrap();
    before.repeat(levels) + inner + &after.repeat(levels)
}

fn members(count: usize, member: impl Fn(usize) -> String) -> String {
    (0..count).map(member).collect::<Vec<_>>().join(",")
}

/// As text, because JSON's own limits are among them.
fn schemas() -> Vec<(String, Fate)> {
    let text = |text: &str| text.to_owned();
    vec![
        (text(r#"{"type": "array", "items": {"type": "integer"}, "maxItems": 1e9}"#), Bounded),
        (text(r#"{"type": "array", "minItems": 1000000000}"#), Bounded),
        (text(r#"{"type": "string", "minLength": 100000000}"#), Bounded),
        (text(r#"{"type": "array", "maxItems": 1e400}"#), Refused),
        (text(r#"{"type": "array", "maxItems": -1}"#), Refused),
        (
            nested(
                20,
                r#"{"type": "array", "minItems": 999, "maxItems": 999, "items": @}"#,
                "true",
            ),
            Bounded,
        ),
        (nested(14, r#"{"anyOf": [{"items": @}, {"type": "object"}]}"#, "true"), Bounded),
        (nested(110, r#"{"type": "array", "items": @}"#, "true"), Refused),
        (nested(100_000, r#"{"items":@}"#, "true"), Refused),
        (text(r##"{"$ref": "#"}"##), Bounded),
        (
            text(
                r##"{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}"##,
            ),
            Bounded,
        ),
        (
            text(
                r##"{"type": "object", "properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}}, "required": ["l", "r"]}"##,
            ),
            Bounded,
        ),
        (text(r##"{"$ref": "#/$defs/nobody"}"##), Refused),
        (text(r#"{"$ref": "http://127.0.0.1:1/schema.json"}"#), Refused),
        (text(r#"{"$ref": "file:///etc/hostname"}"#), Refused),
        (text(r#"{"type": "thing"}"#), Refused),
        (text(r#"{"type": 5}"#), Refused),
        (text(r#"{"properties": []}"#), Refused),
        (text(r#"{"required": "a"}"#), Refused),
        (text(r#"{"enum": []}"#), Refused),
        (text(r#"{"not": {"type": "string"}}"#), Refused),
        (text(r#"{"type": "string", "pattern": "("}"#), Refused),
        (
            text(r#"{"type": "string", "pattern": "^(a|b)*a(a|b){40}$", "maxLength": 10000}"#),
            Bounded,
        ),
        (text("5"), Refused),
        (text("null"), Refused),
        (format!(r#"{{"enum": [{}]}}"#, members(12_000, |i| format!(r#""value {i}""#))), Bounded),
        (format!(r#"{{"const": "{}"}}"#, "x".repeat(1 << 20)), Refused),
        (
            format!(
                r#"{{"allOf": [{}]}}"#,
                members(20, |i| format!(
                    r#"{{"anyOf": [{{"required": ["a{i}"]}}, {{"required": ["b{i}"]}}]}}"#
                ))
            ),
            Bounded,
        ),
        (
            format!(
                r#"{{"type": "object", "properties": {{{}}}}}"#,
                members(900, |i| format!(r#""p{i}": true"#))
            ),
            Bounded,
        ),
    ]
}

fn expressions() -> Vec<(String, Fate)> {
    let text = |text: &str| text.to_owned();
    vec![
        (text("((((((a{100}){100}){100}){100}){100}){100})"), Bounded),
        (text("a{4000000000}"), Bounded),
        (text("(a{0,1000}b?){0,1000}"), Bounded),
        (text("(a|b)*a(a|b){1000}"), Bounded),
        (text(r"(\p{L}{500}){500}"), Bounded),
        ("a?".repeat(5000) + &"a".repeat(5000), Bounded),
        (".*".repeat(2000) + "x", Bounded),
        (format!("a{}", "?".repeat(60_000)), Bounded),
        ("(".repeat(101) + &")".repeat(101), Refused),
        ("a".repeat(1 << 20), Refused),
        (text("("), Refused),
        (text("(?=a)b"), Refused),
        (text(r"(a)\1"), Refused),
        (text(r"[^\s\S]"), Refused),
    ]
}

fn grammars() -> Vec<(String, Fate)> {
    let text = |text: &str| text.to_owned();
    vec![
        (text("start: start start | start start start | \"a\" | "), Bounded),
        (numbered(4000, |i| format!("r{i}: r{}\n", i + 1)) + "r4000: \"x\"\nstart: r0", Bounded),
        (numbered(40, |i| format!("r{i}: r{0} r{0}\n", i + 1)) + "r40: \"a\"\nstart: r0", Bounded),
        (numbered(40, |i| format!("R{i}: R{0} R{0}\n", i + 1)) + "R40: \"a\"\nstart: R0", Bounded),
        (text("start: ((\"a\"{1000}){1000}){1000}"), Bounded),
        (text("start: %json {\"type\": \"array\", \"minItems\": 1000000000}"), Bounded),
        (text("start: start \"a\""), Refused),
        (text("start: A\nA: B\nB: A"), Refused),
        (text("start: nobody"), Refused),
        (text("start: ((("), Refused),
        (text("start: <|nobody|>"), Refused),
        (text("%import python\nstart: NAME"), Refused),
        (format!("start: \"a\"\n//{}", "x".repeat(1 << 20)), Refused),
    ]
}

/// A path, a body and what becomes of it; the field that must be named.
fn requests() -> Vec<(&'static str, String, Fate, &'static str)> {
    let mut all = Vec::new();
    for (schema, fate) in schemas() {
        let body = chat("fox", json!({"max_tokens": 6, "stream": all.len() % 2 == 1})).to_string();
        let format =
            r#""response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": "#;
        let body = format!("{}, {format}{schema}}}}}}}", body.strip_suffix('}').unwrap());
        all.push(("/v1/chat/completions", body, fate, "response_format"));
    }
    for (field, sources) in [("regex", expressions()), ("grammar", grammars())] {
        for (source, fate) in sources {
            let body = json!({"prompt": "Once", "max_tokens": 6, field: source, "stream": all.len() % 2 == 1});
            all.push(("/v1/completions", body.to_string(), fate, field));
        }
    }
    all
}

/// The error of a whole answer, or of a stream that has begun.
fn error(body: &str) -> Option<Json> {
    let data = body.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let found = data.filter_map(|line| serde_json::from_str::<Json>(line).ok());
    found.filter_map(|json| json.get("error").cloned()).next_back()
}

#[test]
fn hostile_grammars_are_refused_or_answered_and_hold_up_nobody() {
    let _alone = alone();
    let server = Server::start(&["--prefix-cache", "0"]);
    let mut left = requests();
    let count = left.len();
    // So that cheap and dear ones meet.
    left.sort_by_key(|(_, body, ..)| body.len() % 7);
    let (left, ends) = (Mutex::new(left), AtomicBool::new(false));
    let begun = Instant::now();
    let work = || {
        let mut slowest = (Duration::ZERO, String::new());
        loop {
            let Some((path, body, fate, field)) = left.lock().unwrap().pop() else {
                return slowest;
            };
            let short: String = body.chars().take(300).collect();
            let begun = Instant::now();
            let reply = crate::client::exchange(&server.address, "POST", path, &body);
            let time = begun.elapsed();
            assert!(time < PATIENCE, "{time:?}: {short}");
            if time > slowest.0 {
                slowest = (time, short.clone());
            }
            let Some(error) = error(&reply.body) else {
                assert!(reply.status == 200 && fate == Bounded, "{short} is answered");
                continue;
            };
            let (param, code) = (error["param"].as_str(), error["code"].as_str().unwrap());
            // What is no JSON for its nesting or its numbers is told with line and column.
            let named =
                param.is_some_and(|param| param.starts_with(field)) && code == "invalid_value";
            assert!(named || code == "invalid_json", "{short}: {error}");
            assert!(reply.status == 400 || reply.status == 200, "{short}: {}", reply.body);
            let message = error["message"].as_str().unwrap();
            assert!(message.len() < 2500 && !message.contains("backtrace"), "{short}: {message}");
        }
    };
    let watch = || {
        let mut times = Vec::new();
        while !ends.load(Ordering::Relaxed) {
            let begun = Instant::now();
            assert_eq!(server.get("/health").status, 200);
            times.push(begun.elapsed());
            thread::sleep(Duration::from_millis(5));
        }
        times
    };
    let (slowest, mut health) = thread::scope(|scope| {
        let health = scope.spawn(watch);
        let clients: Vec<_> = (0..TOGETHER).map(|_| scope.spawn(work)).collect();
        let slowest: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        ends.store(true, Ordering::Relaxed);
        let slowest = slowest.into_iter().map(|joined| joined.unwrap()).max().unwrap();
        (slowest, health.join().unwrap())
    });
    let p99 = percentile(&mut health, 0.99);
    println!(
        "{count} hostile grammars in {:?}, {TOGETHER} at once, the slowest {:?}; /health p50 {:?}, p99 {p99:?}, longest {:?}",
        begun.elapsed(),
        slowest.0,
        percentile(&mut health, 0.5),
        percentile(&mut health, 1.0),
    );
    assert!(p99 < AT_ONCE, "{health:?}");
    server.wait_until_idle(Duration::from_secs(15));
    let after = server.post("/v1/completions", &json!({"prompt": "Once", "regex": "(yes|no)"}));
    assert!(["yes", "no"].contains(&after.json()["choices"][0]["text"].as_str().unwrap()));
}
