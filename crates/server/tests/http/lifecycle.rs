//! Loading, leaving clients, and the end.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use inference_core::LoadProgress;
use inference_server::Ended;
use serde_json::json;

use crate::client::Client;
use crate::{TestServer, chat};
use fake_model::FakeModel as Fake;

const JSON: (&str, &str) = ("content-type", "application/json");

fn send(server: &TestServer, more: serde_json::Value) -> Client {
    let mut client = Client::connect(server.address);
    client.send("POST", "/v1/chat/completions", &[JSON], &chat(more).to_string());
    client
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn an_address_that_cannot_be_had_tells_what_to_do() {
    let first = TestServer::start();
    let config = inference_server::Config { listen: first.address, ..Default::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bound = runtime.block_on(inference_server::Server::bind(config));
    let error = bound.err().unwrap().to_string();
    assert!(error.contains("`--port`"), "{error}");
}

#[test]
fn while_the_model_is_loaded_the_server_says_so() {
    let (go, wait) = mpsc::channel();
    let progress = LoadProgress::new();
    let told = progress.clone();
    let server = TestServer::loading(
        Fake::default(),
        |config| config.load_progress = Some(told),
        move || {
            let _ = wait.recv();
        },
    );
    let health = server.get("/health");
    assert_eq!((health.status, &health.json()["status"]), (503, &json!("loading")));
    assert_eq!(health.json()["models"]["fake"]["load"], json!(null));
    progress.begin(4000);
    for (read, percent) in [(0, 0), (1000, 25), (4000, 100)] {
        progress.reached(read);
        let load = json!({"read_bytes": read, "total_bytes": 4000, "percent": percent});
        assert_eq!(server.get("/health").json()["models"]["fake"]["load"], load);
    }
    let answer = server.chat(json!({}));
    assert_eq!((answer.status, answer.error("code").as_str()), (503, "model_loading"));
    assert!(answer.header("retry-after").is_some());
    assert_eq!(server.get("/v1/models").status, 503);
    go.send(()).unwrap();
    wait_for("loading", || server.get("/health").status == 200);
    assert_eq!(server.get("/health").json()["models"]["fake"]["load"], json!(null));
    assert_eq!(server.chat(json!({})).status, 200);
}

#[test]
fn a_stalled_engine_is_not_healthy() {
    let server = TestServer::start();
    server.model.stalled.store(500, Ordering::SeqCst);
    let health = server.get("/health");
    assert_eq!((health.status, &health.json()["status"]), (503, &json!("stalled")));
}

#[test]
fn a_client_that_leaves_cancels_whatever_its_request_is_at() {
    let fake =
        Fake { says: vec!["a"; 100_000], delay: Duration::from_millis(1), ..Fake::default() };
    let server = TestServer::with(fake, |config| {
        config.timeouts.keep_alive = Duration::from_millis(20);
    });
    let cancelled = || server.model.cancelled.load(Ordering::SeqCst);

    // In decode, streamed.
    let mut client = send(&server, json!({"stream": true, "n": 2}));
    client.read_until("\"content\":\"a\"");
    drop(client);
    wait_for("cancelling a stream", || cancelled() == 2);

    // In decode, not streamed.
    let client = send(&server, json!({}));
    wait_for("running", || server.model.running.load(Ordering::SeqCst) == 1);
    drop(client);
    wait_for("cancelling an answer", || cancelled() == 3);

    // Queued or in prefill.
    server.model.held.store(true, Ordering::SeqCst);
    let mut streamed = send(&server, json!({"stream": true}));
    streamed.read_until(": waiting");
    let whole = send(&server, json!({}));
    wait_for("holding", || server.get("/health").json()["held"] == 2);
    drop((streamed, whole));
    wait_for("cancelling what waits", || cancelled() == 5);
    assert_eq!(server.get("/health").json()["held"], 0);
    assert!(server.get("/metrics").text.contains("ml_cancelled_total 5"));
}

#[test]
fn one_client_that_leaves_does_not_end_anothers_request() {
    let fake = Fake { says: vec!["a"; 200], delay: Duration::from_millis(1), ..Fake::default() };
    let server = TestServer::with(fake, |_| {});
    let stays = send(&server, json!({}));
    let mut leaves = send(&server, json!({"stream": true}));
    leaves.read_until("\"content\":\"a\"");
    drop(leaves);
    let answer = stays.answer();
    assert_eq!(answer.json()["usage"]["completion_tokens"], 200);
}

#[test]
fn draining_lets_what_runs_end_and_takes_nothing_new() {
    let fake = Fake { says: vec!["a"; 100], delay: Duration::from_millis(3), ..Fake::default() };
    let mut server = TestServer::with(fake, |_| {});
    let mut stream = send(&server, json!({"stream": true}));
    stream.read_until("\"content\":\"a\"");
    // A connection that is open can still ask, and is told.
    let mut open = Client::connect(server.address);
    open.raw("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    open.read_until("\"ok\"");
    server.shut_down();
    let rest = stream.read_until("[DONE]");
    assert!(rest.contains("\"finish_reason\":\"stop\""), "{rest}");
    assert_eq!(server.join().unwrap(), Ended::Drained);
    assert!(server.model.closed.load(Ordering::SeqCst), "the model is closed");
    assert!(std::net::TcpStream::connect(server.address).is_err());
}

#[test]
fn what_runs_too_long_gets_its_last_chunk_before_the_deadline() {
    let fake =
        Fake { says: vec!["a"; 100_000], delay: Duration::from_millis(1), ..Fake::default() };
    let mut server = TestServer::with(fake, |config| {
        config.timeouts.drain = Duration::from_secs(1);
    });
    let mut stream =
        send(&server, json!({"stream": true, "stream_options": {"include_usage": true}}));
    stream.read_until("\"content\":\"a\"");
    let whole = send(&server, json!({}));
    wait_for("both to run", || server.model.running.load(Ordering::SeqCst) == 2);
    let begun = Instant::now();
    server.shut_down();
    let rest = stream.read_until("[DONE]");
    assert!(rest.contains("\"finish_reason\":\"length\""), "{rest}");
    let whole = whole.answer();
    assert_eq!(whole.status, 200);
    assert_eq!(whole.json()["choices"][0]["finish_reason"], "length");
    assert_eq!(server.join().unwrap(), Ended::Drained);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    wait_for("cancelling", || server.model.cancelled.load(Ordering::SeqCst) == 2);
}

#[test]
fn a_model_that_cannot_be_loaded_ends_the_server_with_its_error() {
    let load = || {
        let path = "nowhere".to_owned();
        Err(inference_core::Error::Load { path, reason: "no config.json".into() })
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(async {
        let listen = ([127, 0, 0, 1], 0).into();
        let config = inference_server::Config { listen, ..inference_server::Config::default() };
        inference_server::Server::bind(config).await?.run(load, std::future::pending()).await
    });
    assert_eq!(ended.unwrap_err().to_string(), "nowhere: no config.json");
}

#[test]
fn a_keyless_server_beyond_loopback_does_not_start() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = inference_server::Config {
        listen: ([0, 0, 0, 0], 0).into(),
        ..inference_server::Config::default()
    };
    let bound = runtime.block_on(inference_server::Server::bind(config));
    assert!(bound.is_err_and(|error| error.to_string().contains("API key")));
}

#[test]
#[cfg(target_os = "linux")]
fn clients_who_come_all_at_once_are_not_told_to_try_again() {
    use std::net::TcpStream;
    // Nothing takes the connections, so that all of them wait.
    const CLIENTS: usize = 256;
    let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let clients = CLIENTS.min(allowed.trim().parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listen = ([127, 0, 0, 1], 0).into();
    let config = inference_server::Config { listen, ..inference_server::Config::default() };
    let server = runtime.block_on(inference_server::Server::bind(config)).unwrap();
    // The system drops the first packet of one too many, and the client sends it again after a
    // second.
    let patience = Duration::from_millis(900);
    let connect = |_| TcpStream::connect_timeout(&server.address(), patience);
    let waiting: Vec<_> = (0..clients).map(connect).collect();
    let refused = waiting.iter().filter(|client| client.is_err()).count();
    assert_eq!(refused, 0, "of {clients}");
}
