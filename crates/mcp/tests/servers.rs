//! Servers that behave and servers that do not, over stdio and HTTP.

// A helper of a test may panic as the test itself may.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mcp::{Error, Launch, Outcome, Place, Server, Wait};
use serde_json::{Map, Value as Json, json};

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake.py");

/// Longer than any answer here takes on a slow machine.
const PATIENT: Wait<'static> = Wait { limit: Duration::from_secs(30), is_cancelled: &|| false };
/// Shorter than a server hangs.
const SHORT: Wait<'static> = Wait { limit: Duration::from_millis(700), is_cancelled: &|| false };

fn program(arguments: &[&str]) -> Launch {
    let arguments = [&[FAKE], arguments].concat();
    let place = Place::Program {
        command: "python3".into(),
        arguments: arguments.into_iter().map(str::to_owned).collect(),
        variables: vec![("FAKE".into(), "set".into())],
        folder: None,
    };
    Launch { name: "fake".into(), place }
}

fn started(arguments: &[&str]) -> Server {
    Server::start(program(arguments), &PATIENT).unwrap()
}

fn refused(arguments: &[&str], wait: &Wait<'_>) -> String {
    Server::start(program(arguments), wait).err().unwrap().to_string()
}

fn call(server: &mut Server, tool: &str, wait: &Wait<'_>) -> Result<Outcome, Error> {
    let mut arguments = Map::new();
    arguments.insert("text".into(), "a fox\n\u{1f98a}".into());
    server.call(tool, &arguments, wait)
}

fn said(server: &mut Server, tool: &str) -> String {
    call(server, tool, &PATIENT).unwrap().text
}

#[test]
fn tools_of_all_pages_are_listed_and_called() {
    let mut server = started(&[]);
    let names: Vec<_> = server.tools().iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!((names.len(), names[0], names[10]), (11, "echo", "seen"));
    assert_eq!(server.tools()[0].description.as_deref(), Some("does echo"));
    assert_eq!(server.tools()[0].parameters["type"], "object");
    assert_eq!(said(&mut server, "echo"), "a fox\n\u{1f98a}");
    let failed = call(&mut server, "fail", &PATIENT).unwrap();
    assert_eq!((failed.text.as_str(), failed.is_error), ("it \x1b[2J failed", true));
    let error = call(&mut server, "absent", &PATIENT).unwrap_err().to_string();
    let expected = "MCP server `fake`: it refuses tools/call: no 'absent' (-32602)";
    assert_eq!(error, expected);
    assert_eq!(said(&mut server, "echo"), "a fox\n\u{1f98a}");
}

#[test]
fn requests_of_the_server_are_answered_and_new_tools_are_noticed() {
    let mut server = started(&[]);
    let answers: Json = serde_json::from_str(&said(&mut server, "ping")).unwrap();
    assert_eq!(answers[0], json!({"jsonrpc": "2.0", "id": "of ping", "result": {}}));
    assert_eq!(answers[1]["error"]["code"], -32601);
    assert!(!server.refresh(&PATIENT).unwrap());
    assert_eq!(said(&mut server, "change"), "changed");
    assert!(server.refresh(&PATIENT).unwrap());
    assert_eq!(server.tools().last().unwrap().name, "new");
    assert!(!server.refresh(&PATIENT).unwrap());
}

#[test]
fn a_server_that_dies_is_told_with_its_last_words_and_started_again() {
    let mut server = started(&[]);
    let error = call(&mut server, "die", &PATIENT).unwrap_err().to_string();
    assert_eq!(error, "MCP server `fake`: it ended; its last words: something broke");
    assert_eq!(said(&mut server, "echo"), "a fox\n\u{1f98a}");
}

#[test]
fn a_server_that_hangs_is_late_and_can_be_cancelled() {
    let mut server = started(&[]);
    let error = call(&mut server, "hang", &SHORT).unwrap_err().to_string();
    assert!(error.starts_with("MCP server `fake`: no answer to tools/call in 0.7 s"), "{error}");
    let mut server = started(&[]);
    let looks = Cell::new(0);
    let is_cancelled = || {
        looks.set(looks.get() + 1);
        looks.get() > 3
    };
    let wait = Wait { is_cancelled: &is_cancelled, ..PATIENT };
    let begun = Instant::now();
    assert_eq!(call(&mut server, "hang", &wait), Err(Error::Cancelled("fake".into())));
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(refused(&["hello-hangs"], &SHORT).contains("no answer to initialize"));
}

#[test]
fn a_server_is_told_of_calls_that_nobody_waits_for() {
    let (mut child, port) = http();
    let mut server = Server::start(address(port, "/stream", "Bearer key"), &PATIENT).unwrap();
    assert!(call(&mut server, "hang", &SHORT).is_err());
    let begun = Instant::now();
    while !said(&mut server, "seen").contains("notifications/cancelled") {
        assert!(begun.elapsed() < Duration::from_secs(20), "the server is not told");
    }
    drop(server);
    child.kill().unwrap();
}

#[test]
fn nonsense_and_floods_end_the_call_and_not_the_program() {
    let mut server = started(&[]);
    let error = call(&mut server, "nonsense", &PATIENT).unwrap_err().to_string();
    assert!(error.contains("it sent what is no message") && error.contains("this is no JSON"));
    let error = call(&mut server, "long", &PATIENT).unwrap_err().to_string();
    assert!(error.contains("more than 8388608 bytes"), "{error}");
    let error = call(&mut server, "flood", &PATIENT).unwrap_err().to_string();
    assert!(error.contains("it sent 10000 messages and no answer"), "{error}");
    assert_eq!(said(&mut server, "echo"), "a fox\n\u{1f98a}");
    assert!(refused(&["old"], &PATIENT).contains("it speaks the version `1999-01-01`"));
    assert!(refused(&["bad-tools"], &PATIENT).contains("its tool `x` has no schema"));
    assert!(refused(&["many-tools"], &PATIENT).contains("its tools are more than 512"));
    assert!(refused(&["endless-pages"], &PATIENT).contains("more than 64 pages"));
    assert!(refused(&["gone"], &PATIENT).contains("no key is set"));
    assert!(refused(&["deaf"], &SHORT).contains("no answer to initialize"));
}

#[test]
fn a_program_gets_its_own_variables_and_no_others() {
    let mut server = started(&[]);
    let variables: Json = serde_json::from_str(&said(&mut server, "env")).unwrap();
    assert_eq!(variables["FAKE"], "set");
    assert!(variables["PATH"].is_string());
    // Cargo sets it for tests.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert_eq!(variables["CARGO_MANIFEST_DIR"], Json::Null);
}

#[test]
fn a_program_that_is_not_there_is_told_by_its_name() {
    let place = Place::Program {
        command: "/nowhere/server".into(),
        arguments: Vec::new(),
        variables: Vec::new(),
        folder: None,
    };
    let error = Server::start(Launch { name: "a".into(), place }, &PATIENT).err().unwrap();
    let expected = "MCP server `a`: `/nowhere/server` cannot be started: no such file or directory";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_program_that_stays_is_ended_with_what_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pids");
    let server = started(&["stays", path.to_str().unwrap()]);
    let pids = std::fs::read_to_string(&path).unwrap();
    let begun = Instant::now();
    drop(server);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    for pid in pids.split(' ') {
        let is_here = || Path::new(&format!("/proc/{pid}/fd/0")).symlink_metadata().is_ok();
        while cfg!(target_os = "linux") && is_here() {
            assert!(begun.elapsed() < Duration::from_secs(10), "{pid} is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The fake server at a port.
fn http() -> (Child, u16) {
    let mut command = Command::new("python3");
    let mut child = command.args([FAKE, "http"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().parse().unwrap())
}

fn address(port: u16, path: &str, key: &str) -> Launch {
    let headers = vec![("Authorization".to_owned(), key.to_owned())];
    let url = format!("http://127.0.0.1:{port}{path}");
    Launch { name: "web".into(), place: Place::Address { url, headers } }
}

#[test]
fn servers_at_an_address_answer_by_json_and_by_streams() {
    let (mut child, port) = http();
    for path in ["/json", "/stream"] {
        let mut server = Server::start(address(port, path, "Bearer key"), &PATIENT).unwrap();
        assert_eq!(server.tools().len(), 11);
        assert_eq!(said(&mut server, "echo"), "a fox\n\u{1f98a}");
        let seen: Json = serde_json::from_str(&said(&mut server, "seen")).unwrap();
        let last = seen.as_array().unwrap().last().unwrap();
        assert_eq!(*last, json!(["tools/call", "one", "2025-11-25"]));
        assert!(seen.as_array().unwrap().contains(&json!([
            "notifications/initialized",
            "one",
            "2025-11-25"
        ])));
    }
    let mut server = Server::start(address(port, "/stream", "Bearer key"), &PATIENT).unwrap();
    assert!(said(&mut server, "seen").contains("DELETE one"));
    let error = call(&mut server, "long", &PATIENT).unwrap_err().to_string();
    assert!(error.contains("more than 8388608 bytes"), "{error}");
    let error = call(&mut server, "nonsense", &PATIENT).unwrap_err().to_string();
    assert!(error.contains("this is no JSON"), "{error}");
    let error = call(&mut server, "die", &PATIENT).unwrap_err().to_string();
    assert!(error.contains("its stream ended without an answer"), "{error}");
    let error = call(&mut server, "flood", &PATIENT).unwrap_err().to_string();
    assert!(error.contains("it sent 10000 messages"), "{error}");
    assert_eq!(said(&mut server, "echo"), "a fox\n\u{1f98a}");
    drop(server);
    child.kill().unwrap();
}

#[test]
fn servers_at_an_address_that_refuse_are_told_with_the_remedy() {
    let (mut child, port) = http();
    let refused = |launch| Server::start(launch, &PATIENT).err().unwrap().to_string();
    let error = refused(address(port, "/json", "Bearer other"));
    assert!(error.contains("401: give what it wants in `headers`"), "{error}");
    assert!(error.contains("who are you"), "{error}");
    let error = refused(address(port, "/moved", "Bearer key"));
    assert!(error.contains("it sends on to http://127.0.0.1:9/other"), "{error}");
    let error = refused(address(port, "/text", "Bearer key"));
    assert!(error.contains("the type `text/plain`, and with no message"), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    let error = refused(address(port, "/json", "Bearer key"));
    assert!(error.contains("MCP server `web`: http://127.0.0.1:"), "{error}");
    assert!(error.to_lowercase().contains("connection refused"), "{error}");
}
