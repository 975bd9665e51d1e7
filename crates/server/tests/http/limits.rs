//! Limits: of bodies, headers, times, connections and waiting requests.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use inference_server::{ApiKey, Ended};
use serde_json::json;

use crate::client::Client;
use crate::{TestServer, chat};
use fake_model::FakeModel as Fake;

const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn a_large_body_is_refused_and_the_client_sees_why() {
    let server = TestServer::with(Fake::default(), |config| config.limits.body_bytes = 10_000);
    let body = |size: usize| format!("{{\"messages\": \"{}\"}}", "x".repeat(size));
    let post = |size| {
        let path = "/v1/chat/completions";
        Client::connect(server.address).request("POST", path, &[JSON], &body(size))
    };
    assert_eq!(post(5_000).status, 400);
    for size in [10_000, 70_000] {
        let answer = post(size);
        assert_eq!((answer.status, answer.error("code").as_str()), (413, "request_too_large"));
    }
}

#[test]
fn a_body_without_a_length_is_bounded_too() {
    let server = TestServer::with(Fake::default(), |config| config.limits.body_bytes = 1_000);
    let mut client = Client::connect(server.address);
    let head = "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                connection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    client.raw(head);
    for _ in 0..4 {
        client.raw(&format!("200\r\n{}\r\n", "x".repeat(512)));
    }
    client.raw("0\r\n\r\n");
    assert_eq!(client.answer().status, 413);
}

#[test]
fn slow_headers_and_slow_bodies_end() {
    let server = TestServer::with(Fake::default(), |config| {
        config.timeouts.header = Duration::from_millis(200);
        config.timeouts.body = Duration::from_millis(200);
    });
    let begun = Instant::now();
    let mut slow = Client::connect(server.address);
    slow.raw("GET /health HTTP/1.1\r\nhost: loc");
    let mut rest = Vec::new();
    let read = std::io::Read::read_to_end(&mut slow.stream, &mut rest);
    assert!(read.is_ok() && begun.elapsed() < Duration::from_secs(5), "{read:?}");

    let mut slow = Client::connect(server.address);
    let head = "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 100\r\n\r\n{";
    slow.raw(head);
    let answer = slow.answer();
    assert_eq!((answer.status, answer.error("code").as_str()), (408, "request_timeout"));
}

#[test]
fn too_many_headers_are_refused() {
    let server = TestServer::start();
    let names: Vec<_> = (0..120).map(|i| format!("x-{i}")).collect();
    let headers: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let answer = Client::connect(server.address).request("GET", "/health", &headers, "");
    assert_eq!(answer.status, 431);
}

#[test]
fn more_connections_than_may_be_wait_for_one_to_end() {
    let server = TestServer::with(Fake::default(), |config| config.limits.connections = 1);
    let first = Client::connect(server.address);
    let mut second = Client::connect(server.address);
    second.send("GET", "/health", &[], "");
    let short = Duration::from_millis(100);
    second.stream.set_read_timeout(Some(short)).unwrap();
    let mut byte = [0];
    // Whichever of the two was accepted first, the other one waits.
    let waits = std::io::Read::read(&mut second.stream, &mut byte).is_err();
    drop(first);
    second.stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert!(waits);
    assert_eq!(second.answer().status, 200);
}

#[test]
fn a_full_queue_is_told_at_once_and_empties_again() {
    let server = TestServer::with(Fake::default(), |config| config.limits.waiting = 2);
    server.model.held.store(true, Ordering::SeqCst);
    let body = chat(json!({})).to_string();
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut client = Client::connect(server.address);
        client.send("POST", "/v1/chat/completions", &[JSON], &body);
        waiting.push(client);
    }
    while server.get("/health").json()["held"] != 3 {
        std::thread::yield_now();
    }
    let begun = Instant::now();
    let answer = server.chat(json!({}));
    let took = begun.elapsed();
    assert_eq!((answer.status, answer.error("code").as_str()), (429, "queue_full"));
    assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert!(took < Duration::from_millis(50), "{took:?}");
    assert_eq!(server.get("/v1/models").status, 200, "what needs no engine is answered");
    assert_eq!(server.chat(json!({"n": 4})).error("param"), "n", "never fits");

    server.model.held.store(false, Ordering::SeqCst);
    for client in waiting {
        assert_eq!(client.answer().status, 200);
    }
    assert_eq!(server.chat(json!({})).status, 200);
    assert!(server.get("/metrics").text.contains("ml_rejected_total 1"));
}

#[test]
fn health_and_metrics_answer_under_load() {
    let fake = Fake { delay: Duration::from_millis(5), ..Fake::default() };
    let server = TestServer::with(fake, |_| {});
    let address = server.address;
    let load = |_| {
        std::thread::spawn(move || {
            Client::connect(address).post("/v1/chat/completions", &chat(json!({}))).status
        })
    };
    let threads: Vec<_> = (0..32).map(load).collect();
    for _ in 0..20 {
        let begun = Instant::now();
        assert_eq!(server.get("/health").status, 200);
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 200);
    }
    let metrics = server.get("/metrics").text;
    for line in [
        "ml_generations_total{finish_reason=\"stop\"} 32",
        "ml_prompt_tokens_total 256",
        "ml_cached_prompt_tokens_total 32",
        "ml_generation_tokens_total 128",
        "ml_time_to_first_token_seconds_count 32",
        "ml_num_requests_running 0",
        "ml_num_requests_waiting 0",
        "ml_kv_cache_usage_bytes 0",
        "ml_engine_heartbeat_age_seconds 0",
        "ml_http_requests_total{endpoint=\"/v1/chat/completions\",status=\"200\"} 32",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

#[test]
fn a_client_that_does_not_read_is_left() {
    let long: Vec<&'static str> = vec!["a long piece of text "; 200_000];
    let fake = Fake { says: long, ..Fake::default() };
    let server = TestServer::with(fake, |config| {
        config.timeouts.write = Duration::from_millis(200);
    });
    let mut client = Client::connect(server.address);
    let body = chat(json!({"stream": true})).to_string();
    client.send("POST", "/v1/chat/completions", &[JSON], &body);
    let begun = Instant::now();
    loop {
        let metrics = server.get("/metrics").text;
        if metrics.contains("ml_cancelled_total 1") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{metrics}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Clients write the head and the body apart, and use a connection again.
#[test]
fn a_connection_goes_on_behind_a_refused_body() {
    let open = TestServer::with(Fake::default(), |config| config.limits.body_bytes = 1_000);
    let keyed = TestServer::with(Fake::default(), |config| {
        config.keys.extend(ApiKey::new("secret"));
    });
    let json = "content-type: application/json\r\n";
    let cases = [
        (&open, "POST /api/push", json, 10, 400),
        (&open, "POST /nowhere", json, 10, 404),
        (&open, "PUT /v1/chat/completions", json, 10, 405),
        (&open, "POST /v1/chat/completions", "", 10, 415),
        (&open, "POST /v1/chat/completions", json, 5_000, 413),
        (&keyed, "POST /v1/chat/completions", json, 10, 401),
        (&open, "GET /health", "", 10, 200),
    ];
    for (server, line, headers, length, status) in cases {
        let mut client = Client::connect(server.address);
        client.raw(&format!(
            "{line} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n"
        ));
        std::thread::sleep(Duration::from_millis(50));
        client.raw(&"x".repeat(length));
        client.read_until(&format!("HTTP/1.1 {status} "));
        client.raw("GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        client.read_until("HTTP/1.1 200 ");
    }
}

/// A client that waits to be told to send its body is not told to where nobody reads it.
#[test]
fn a_body_that_is_expected_by_nobody_is_not_asked_for() {
    let server = TestServer::start();
    let mut client = Client::connect(server.address);
    let length = "content-length: 10\r\nexpect: 100-continue\r\n";
    client.raw(&format!("POST /api/push HTTP/1.1\r\nhost: localhost\r\n{length}\r\n"));
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("connection")), (400, Some("close")));
}

#[test]
fn a_body_that_was_asked_for_is_read_to_its_end() {
    let server = TestServer::with(Fake::default(), |config| config.limits.body_bytes = 1_000);
    let head = "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                transfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n";
    let good = "{\"content\": \"a\"}";
    for (chunk, count, status) in [(good, 1, 200), (&*"x".repeat(512), 12, 413)] {
        let mut client = Client::connect(server.address);
        client.raw(head);
        client.read_until("HTTP/1.1 100 Continue\r\n\r\n");
        for _ in 0..count {
            client.raw(&format!("{:x}\r\n{chunk}\r\n", chunk.len()));
        }
        client.raw("0\r\n\r\n");
        client.read_until(&format!("HTTP/1.1 {status} "));
        client.raw("GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        client.read_until("HTTP/1.1 200 ");
    }
}

#[test]
fn a_refused_body_that_never_comes_is_not_waited_for() {
    let key = |config: &mut inference_server::Config| config.keys.extend(ApiKey::new("secret"));
    let server = TestServer::with(Fake::default(), key);
    let begun = Instant::now();
    let mut client = Client::connect(server.address);
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n";
    client.raw(head);
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("connection")), (401, Some("close")));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// It writes all of a body that is not read before it reads the answer.
#[test]
fn a_client_that_still_writes_gets_its_answer() {
    let server = TestServer::with(Fake::default(), |config| config.limits.body_bytes = 1_000);
    let mut client = Client::connect(server.address);
    let size = 8 << 20;
    client.raw(&format!(
        "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {size}\r\n\r\n"
    ));
    let part = "x".repeat(1 << 16);
    for _ in 0..size / part.len() {
        std::io::Write::write_all(&mut client.stream, part.as_bytes()).expect("it is taken");
    }
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("connection")), (413, Some("close")));
}

#[test]
fn a_stream_ends_an_old_clients_connection() {
    let server = TestServer::start();
    let body = chat(json!({"stream": true})).to_string();
    let mut client = Client::connect(server.address);
    client.raw(&format!(
        "POST /v1/chat/completions HTTP/1.0\r\nhost: localhost\r\nconnection: keep-alive\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert!(answer.text.ends_with("data: [DONE]\n\n"), "{}", answer.text);
}

/// An old client that wants to keep its connection is told that it cannot.
#[test]
fn an_old_clients_connection_that_cannot_go_on_is_not_said_to() {
    let server = TestServer::with(Fake::default(), |config| config.limits.body_bytes = 1_000);
    let mut client = Client::connect(server.address);
    let head = "POST /tokenize HTTP/1.0\r\nhost: localhost\r\nconnection: keep-alive\r\n\
                content-type: application/json\r\ncontent-length: 100000\r\n\r\n";
    client.raw(head);
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("connection")), (413, Some("close")));
}

/// A body that nobody asked for does not hold its connection however slowly it comes.
#[test]
fn a_refused_body_that_drips_is_given_up() {
    let server = TestServer::start();
    let begun = Instant::now();
    let mut client = Client::connect(server.address);
    client.raw("POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n");
    client.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut said = Vec::new();
    while said.is_empty() {
        client.raw("x");
        let mut buffer = [0; 1024];
        match std::io::Read::read(&mut client.stream, &mut buffer) {
            Ok(count) => said.extend_from_slice(&buffer[..count]),
            Err(_) => assert!(begun.elapsed() < Duration::from_secs(20), "it waits for ever"),
        }
    }
    let said = String::from_utf8_lossy(&said);
    assert!(said.starts_with("HTTP/1.1 404 ") && said.contains("connection: close"), "{said}");
}

/// Whoever still sends to a connection that has ended does not hold the server's end up.
#[test]
fn a_connection_in_its_second_stage_ends_with_the_server() {
    let mut server = TestServer::with(Fake::default(), |config| {
        config.limits.body_bytes = 1_000;
        config.timeouts.drain = Duration::from_secs(1);
    });
    let mut client = Client::connect(server.address);
    let head = "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 100000\r\n\r\n";
    client.raw(head);
    client.read_until("HTTP/1.1 413 ");
    let begun = Instant::now();
    server.shut_down();
    assert_eq!(server.join().unwrap(), Ended::Drained);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}
