//! Clients that are slow on purpose: none may hold what others need.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Client;
use crate::{TestServer, chat};
use fake_model::FakeModel as Fake;

const JSON: (&str, &str) = ("content-type", "application/json");

/// How many of a kind attack together.
const MANY: usize = 64;

/// The time that the servers of these tests give.
const LIMIT: Duration = Duration::from_millis(500);

/// Between two bytes: each comes in time, and all of them do not.
const PAUSE: Duration = Duration::from_millis(50);

fn server() -> TestServer {
    TestServer::with(Fake::default(), |config| {
        config.timeouts.header = LIMIT;
        config.timeouts.body = LIMIT;
    })
}

/// Sends `begin` and then a byte at a time of `rest`, over and over, until the server has enough;
/// returns what it said and how long it took.
fn drip(server: &TestServer, begin: &str, rest: &str) -> (String, Duration) {
    let begun = Instant::now();
    let mut client = Client::connect(server.address);
    client.raw(begin);
    client.stream.set_read_timeout(Some(PAUSE)).unwrap();
    let mut said = Vec::new();
    let mut buffer = [0; 1024];
    for byte in rest.bytes().cycle() {
        match client.stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => said.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        assert!(begun.elapsed() < 20 * LIMIT, "the server waits for ever");
        let _ = client.stream.write_all(&[byte]);
    }
    (String::from_utf8_lossy(&said).into_owned(), begun.elapsed())
}

/// Others are answered while `MANY` do `attack`.
fn under(server: &TestServer, attack: impl Fn() -> (String, Duration) + Sync) -> Vec<String> {
    thread::scope(|scope| {
        let attackers: Vec<_> = (0..MANY).map(|_| scope.spawn(&attack)).collect();
        thread::sleep(LIMIT / 2);
        for _ in 0..5 {
            let begun = Instant::now();
            assert_eq!(server.chat(json!({})).status, 200);
            assert!(begun.elapsed() < LIMIT, "another request took {:?}", begun.elapsed());
        }
        attackers.into_iter().map(|attacker| attacker.join().unwrap().0).collect()
    })
}

#[test]
fn headers_that_drip_end_with_their_time() {
    let server = server();
    under(&server, || drip(&server, "GET /health HTTP/1.1\r\nhost: localhost\r\n", "x-a: b\r\n"));
    under(&server, || drip(&server, "", "G"));
}

#[test]
fn connections_without_a_word_end_with_the_headers_time() {
    let server = server();
    let begun = Instant::now();
    let mut silent: Vec<_> = (0..MANY).map(|_| Client::connect(server.address)).collect();
    // One that had its answer may not stay for ever either.
    let mut kept = Client::connect(server.address);
    kept.raw("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    kept.read_until("\"ok\"");
    silent.push(kept);
    for mut client in silent {
        let mut rest = Vec::new();
        let _ = client.stream.read_to_end(&mut rest);
    }
    assert!(begun.elapsed() < 10 * LIMIT, "{:?}", begun.elapsed());
    // A client sees the end just before it is counted.
    while !server.get("/metrics").text.contains("ml_num_connections 1\n") {
        assert!(begun.elapsed() < 10 * LIMIT, "a connection is counted that has ended");
        thread::yield_now();
    }
}

#[test]
fn bodies_that_drip_are_told_that_they_are_late() {
    let server = server();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n\
                content-type: application/json\r\n";
    let sized = format!("{head}content-length: 1000\r\n\r\n{{");
    for said in under(&server, || drip(&server, &sized, " ")) {
        assert!(said.contains("408") && said.contains("request_timeout"), "{said}");
    }
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n");
    for said in under(&server, || drip(&server, &chunked, "1\r\n \r\n")) {
        assert!(said.contains("408"), "{said}");
    }
}

#[test]
fn a_client_that_reads_a_byte_at_a_time_is_left() {
    let fake = Fake { says: vec!["a long piece of text "; 200_000], ..Fake::default() };
    let server = TestServer::with(fake, |config| config.timeouts.write = LIMIT);
    let mut client = Client::connect(server.address);
    client.send(
        "POST",
        "/v1/chat/completions",
        &[JSON],
        &chat(json!({"stream": true})).to_string(),
    );
    let begun = Instant::now();
    let mut byte = [0];
    while !server.get("/metrics").text.contains("ml_cancelled_total 1") {
        assert!(begun.elapsed() < 40 * LIMIT, "it holds its place for ever");
        let _ = client.stream.read(&mut byte);
        thread::sleep(PAUSE);
    }
    // It is counted just before its place is free.
    while server.get("/health").json()["held"] != 0 {
        assert!(begun.elapsed() < 40 * LIMIT, "its place is held for ever");
        thread::yield_now();
    }
}
