//! Requests that are malformed as HTTP: the first line, the headers, the form of the body.

use std::io::{Read, Write};

use inference_server::ApiKey;

use crate::TestServer;
use crate::client::Client;
use fake_model::FakeModel as Fake;

/// A well-formed head but for `more`, which ends it and may bring a body.
fn post(path: &str, more: &str) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}");
    head.into_bytes()
}

/// A chat with `body` of the type `media`.
fn typed(media: &str, body: &[u8]) -> Vec<u8> {
    let more = format!("content-type: {media}\r\ncontent-length: {}\r\n\r\n", body.len());
    [post("/v1/chat/completions", &more), body.to_vec()].concat()
}

fn body(body: impl AsRef<[u8]>) -> Vec<u8> {
    typed("application/json", body.as_ref())
}

/// A request without a body.
fn line(first: &str, headers: &str) -> Vec<u8> {
    format!("{first}\r\nconnection: close\r\n{headers}\r\n").into_bytes()
}

/// Sends `bytes` and reads all that comes.
fn exchange(server: &TestServer, bytes: &[u8]) -> String {
    let mut client = Client::connect(server.address);
    // The server may answer and leave before it has read everything.
    let _ = client.stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = client.stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Each must have the status and, where there is one, the code in its body.
fn check(server: &TestServer, table: Vec<(&str, Vec<u8>, u16, &str)>) {
    let mut wrong = Vec::new();
    for (what, bytes, status, code) in table {
        let answer = exchange(server, &bytes);
        let right = answer.starts_with(&format!("HTTP/1.1 {status} "))
            || answer.starts_with(&format!("HTTP/1.0 {status} "));
        let code = format!("\"code\":\"{code}\"");
        let answers = answer.matches("HTTP/1.").count();
        if !right || answers != 1 || code.len() > 9 && !answer.contains(&code) {
            let begin: String = answer.chars().take(400).collect();
            wrong.push(format!("{what}: {status} {code}\n{begin}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(server.chat(serde_json::json!({})).status, 200);
}

#[test]
fn bodies_that_are_no_object_of_json() {
    let server = TestServer::start();
    let utf16: Vec<u8> = "{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let messages = r#"{"messages": [{"role": "user", "content": "a"}]"#;
    let nested = |open: &str, close: &str, depth: usize| {
        format!("{messages}, \"metadata\": {}1{}}}", open.repeat(depth), close.repeat(depth))
    };
    let invalid = |bytes: &[u8]| {
        let mut text = br#"{"messages": [{"role": "user", "content": ""#.to_vec();
        text.extend_from_slice(bytes);
        text.extend_from_slice(br#""}]}"#);
        text
    };
    let json = "invalid_json";
    check(
        &server,
        vec![
            ("no body", body(""), 400, json),
            ("white space", body(" \r\n"), 400, json),
            ("null", body("null"), 400, ""),
            ("a number", body("1"), 400, ""),
            ("a string", body("\"a\""), 400, ""),
            ("an array", body("[{}]"), 400, ""),
            ("two objects", body(format!("{messages}}}{{}}")), 400, json),
            ("two lines", body(format!("{messages}}}\n{messages}}}")), 400, json),
            ("a mark of the byte order", body(format!("\u{feff}{messages}}}")), 400, json),
            ("UTF-16", body(utf16), 400, json),
            ("half an object", body(messages), 400, json),
            ("a form", body("prompt=a&max_tokens=5"), 400, json),
            ("XML", body("<a/>"), 400, json),
            ("NUL", body("\0"), 400, json),
            ("a control character", body(invalid(b"\x01")), 400, json),
            ("a lone continuation byte", body(invalid(b"\x80")), 400, json),
            ("half a character", body(invalid(b"\xe2\x82")), 400, json),
            ("an overlong character", body(invalid(b"\xc0\xaf")), 400, json),
            ("a surrogate in UTF-8", body(invalid(b"\xed\xa0\x80")), 400, json),
            ("beyond Unicode", body(invalid(b"\xf5\x80\x80\x80")), 400, json),
            ("an invalid key", body(b"{\"\xff\": 1}"), 400, json),
            ("10,000 arrays", body(nested("[", "]", 10_000)), 400, json),
            ("10,000 objects", body(nested("{\"a\":", "}", 10_000)), 400, json),
            ("10,000 open arrays", body("[".repeat(10_000)), 400, json),
            ("a million open arrays", body("[".repeat(1_000_000)), 400, json),
            (
                "a long number",
                body(format!("{messages}, \"n\": {}}}", "9".repeat(10_000))),
                400,
                json,
            ),
        ],
    );
}

#[test]
fn bodies_that_are_declared_as_something_else() {
    let server = TestServer::start();
    let chat = br#"{"messages": [{"role": "user", "content": "a"}]}"#;
    let typed = |media: &str| typed(media, chat);
    let type_ = "unsupported_media_type";
    let coded = |coding: &str| {
        let media = format!("application/json\r\ncontent-encoding: {coding}");
        typed(&media)
    };
    check(
        &server,
        vec![
            ("text", typed("text/plain"), 415, type_),
            ("a form", typed("application/x-www-form-urlencoded"), 415, type_),
            ("a form in parts", typed("multipart/form-data; boundary=a"), 415, type_),
            ("nothing", typed(""), 415, type_),
            ("almost", typed("application/jsonl"), 415, type_),
            ("a list", typed("application/json, text/plain"), 415, type_),
            ("another charset", typed("application/json; charset=utf-16"), 415, type_),
            ("Latin", typed("application/json; charset=\"iso-8859-1\""), 415, type_),
            ("not ASCII", typed("application/json\u{e9}"), 415, type_),
            ("gzip", coded("gzip"), 415, type_),
            ("two codings", coded("identity, br"), 415, type_),
            ("plain", typed("Application/JSON"), 200, ""),
            ("UTF-8", typed("application/json;charset=\"UTF-8\""), 200, ""),
            ("as it is", coded("identity"), 200, ""),
        ],
    );
}

#[test]
fn bodies_whose_length_is_unclear() {
    let server = TestServer::start();
    let chat = r#"{"messages": [{"role": "user", "content": "a"}]}"#;
    let with = |headers: &str, body: &str| {
        post(
            "/v1/chat/completions",
            &format!("content-type: application/json\r\n{headers}\r\n{body}"),
        )
    };
    let chunked = format!("{:x}\r\n{chat}\r\n0\r\n\r\n", chat.len());
    let te = "transfer-encoding: chunked\r\n";
    let both = format!("content-length: 4\r\n{te}");
    let other = format!("{te}content-length: 4\r\n");
    check(
        &server,
        vec![
            ("chunks", with(te, &chunked), 200, ""),
            (
                "chunks with trailers",
                with(te, &chunked.replace("0\r\n\r\n", "0\r\na: b\r\n\r\n")),
                200,
                "",
            ),
            // Chunks count, as RFC 9112 has it; the length is not used for where the body ends.
            ("a length and chunks", with(&both, &chunked), 200, ""),
            ("chunks and a length", with(&other, &chunked), 200, ""),
            ("a chunk without a size", with(te, "zz\r\n{}\r\n0\r\n\r\n"), 400, ""),
            ("a chunk of a negative size", with(te, "-1\r\n{}\r\n0\r\n\r\n"), 400, ""),
            ("a chunk beyond 64 bits", with(te, "fffffffffffffffff\r\n{}\r\n0\r\n\r\n"), 400, ""),
            ("another coding", with("transfer-encoding: gzip\r\n", chat), 400, ""),
            ("chunks inside", with("transfer-encoding: chunked, gzip\r\n", chat), 400, ""),
            ("two lengths", with("content-length: 4\r\ncontent-length: 5\r\n", chat), 400, ""),
            ("a negative length", with("content-length: -1\r\n", chat), 400, ""),
            ("a length with a sign", with("content-length: +5\r\n", chat), 400, ""),
            ("a length in hexadecimal", with("content-length: 0x30\r\n", chat), 400, ""),
            (
                "a length beyond 64 bits",
                with("content-length: 99999999999999999999\r\n", ""),
                400,
                "",
            ),
            (
                "a length beyond the limit",
                with("content-length: 99999999999\r\n", ""),
                413,
                "request_too_large",
            ),
            ("more than the length", with("content-length: 5\r\n", chat), 400, "invalid_json"),
            ("no length", with("", ""), 400, "invalid_json"),
        ],
    );
}

#[test]
fn first_lines_and_headers_that_are_none() {
    let server = TestServer::start();
    let host = "host: localhost\r\n";
    let get = |path: &str| line(&format!("GET {path} HTTP/1.1"), host);
    let method = |method: &str, path: &str| line(&format!("{method} {path} HTTP/1.1"), host);
    let header = |more: &str| line("GET /v1/models HTTP/1.1", &format!("{host}{more}\r\n"));
    let (nowhere, other) = ("not_found", "method_not_allowed");
    check(
        &server,
        vec![
            ("no path", get(""), 400, ""),
            ("a relative path", get("v1/models"), 400, ""),
            ("a path that is none", get("/v1/nowhere"), 404, nowhere),
            ("a path in capitals", get("/V1/models"), 404, nowhere),
            ("a path upwards", get("/v1/../health"), 404, nowhere),
            ("an encoded path upwards", get("/%2e%2e/etc/passwd"), 404, nowhere),
            ("a model that is none", get("/v1/models/x"), 404, "model_not_found"),
            ("a model with a slash", get("/v1/models/a/b"), 404, "model_not_found"),
            ("a model that is no UTF-8", get("/v1/models/%ff"), 400, ""),
            ("a response that is no UTF-8", get("/v1/responses/%ff"), 400, ""),
            ("a model with NUL", get("/v1/models/%00"), 404, "model_not_found"),
            ("a space in the path", get("/v1/mo dels"), 400, ""),
            ("a long path", get(&format!("/{}", "a".repeat(70_000))), 414, ""),
            ("GET of a chat", get("/v1/chat/completions"), 405, other),
            ("PUT", method("PUT", "/v1/completions"), 405, other),
            ("DELETE", method("DELETE", "/v1/models/fake"), 405, other),
            ("PATCH", method("PATCH", "/tokenize"), 405, other),
            ("TRACE", method("TRACE", "/"), 405, other),
            ("OPTIONS without an origin", method("OPTIONS", "/v1/models"), 405, other),
            ("POST of what is read", method("POST", "/health"), 405, other),
            ("a method of our own", method("BREW", "/v1/chat/completions"), 405, other),
            ("a method in lower case", method("get", "/health"), 405, other),
            ("CONNECT", line("CONNECT localhost:80 HTTP/1.1", host), 404, nowhere),
            ("no method", line(" /health HTTP/1.1", host), 400, ""),
            ("no version", line("GET /health", host), 400, ""),
            ("HTTP/3", line("GET /health HTTP/3.0", host), 400, ""),
            ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), 400, ""),
            ("noise", vec![0xff; 64], 400, ""),
            ("no host", line("GET /v1/models HTTP/1.1", ""), 400, ""),
            (
                "an empty host",
                line("GET /v1/models HTTP/1.1", "host:\r\n"),
                403,
                "host_not_allowed",
            ),
            (
                "another host",
                line("GET /v1/models HTTP/1.1", "host: evil.example\r\n"),
                403,
                "host_not_allowed",
            ),
            (
                "a host that is no text",
                line("GET /v1/models HTTP/1.1", "host: \u{e9}\r\n"),
                403,
                "host_not_allowed",
            ),
            (
                "another host in the path",
                line("GET http://evil.example/v1/models HTTP/1.1", host),
                403,
                "host_not_allowed",
            ),
            ("two hosts", header("host: evil.example"), 400, ""),
            ("an origin", header("origin: https://evil.example"), 403, "origin_not_allowed"),
            ("an origin without a name", header("origin: null"), 403, "origin_not_allowed"),
            ("an empty origin", header("origin:"), 403, "origin_not_allowed"),
            (
                "two origins",
                header("origin: http://localhost\r\norigin: https://evil.example"),
                400,
                "",
            ),
            ("two types", header("content-type: a\r\ncontent-type: application/json"), 400, ""),
            ("no colon", header("abc"), 400, ""),
            ("a space before the colon", header("a : b"), 400, ""),
            ("no name", header(": b"), 400, ""),
            ("a name that is no ASCII", header("\u{e9}: b"), 400, ""),
            ("NUL in a value", header("a: \0"), 400, ""),
            ("a folded header", header("a: b\r\n c"), 400, ""),
            ("a long header", header(&format!("a: {}", "b".repeat(1 << 20))), 431, ""),
            ("many headers", header(&vec!["a: b"; 101].join("\r\n")), 431, ""),
        ],
    );
}

#[test]
fn keys_that_are_none() {
    let server = TestServer::with(Fake::default(), |config| {
        config.keys.extend(ApiKey::new("secret"));
    });
    let with =
        |headers: &str| line("GET /v1/models HTTP/1.1", &format!("host: localhost\r\n{headers}"));
    let key = |value: &str| with(&format!("authorization: {value}\r\n"));
    let table = vec![
        ("none", with(""), 401, "invalid_api_key"),
        ("empty", key(""), 401, "invalid_api_key"),
        ("no key", key("Bearer"), 401, "invalid_api_key"),
        ("an empty key", key("Bearer "), 401, "invalid_api_key"),
        ("no scheme", key("secret"), 401, "invalid_api_key"),
        ("another scheme", key("Basic c2VjcmV0"), 401, "invalid_api_key"),
        ("another key", key("Bearer Secret"), 401, "invalid_api_key"),
        ("a longer key", key("Bearer secretsecret"), 401, "invalid_api_key"),
        ("a key in quotes", key("Bearer \"secret\""), 401, "invalid_api_key"),
        ("two keys in one", key("Bearer secret, Bearer other"), 401, "invalid_api_key"),
        ("no ASCII", key("Bearer s\u{e9}cret"), 401, "invalid_api_key"),
        ("a very long key", key(&format!("Bearer {}", "a".repeat(60_000))), 401, "invalid_api_key"),
        (
            "two headers",
            with("authorization: Bearer x\r\nauthorization: Bearer secret\r\n"),
            400,
            "is there twice",
        ),
        (
            "two headers, the right one first",
            with("authorization: Bearer secret\r\nauthorization: Bearer x\r\n"),
            400,
            "is there twice",
        ),
        (
            "a key in the path",
            line("GET /v1/models?api_key=secret HTTP/1.1", "host: localhost\r\n"),
            401,
            "invalid_api_key",
        ),
        ("another header", with("api-key: secret\r\n"), 401, "invalid_api_key"),
    ];
    let mut wrong = Vec::new();
    for (what, bytes, status, code) in table {
        let answer = exchange(&server, &bytes);
        if !answer.starts_with(&format!("HTTP/1.1 {status} ")) || !answer.contains(code) {
            wrong.push(format!("{what}: {answer}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(exchange(&server, &key("Bearer secret")).starts_with("HTTP/1.1 200"));
}
