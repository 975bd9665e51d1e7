//! Who may use the server, and what is wrong with a request as such.

use inference_server::ApiKey;
use serde_json::json;

use crate::TestServer;
use crate::client::Client;
use fake_model::FakeModel as Fake;

const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn a_key_opens_what_is_not_public() {
    let server = TestServer::with(Fake::default(), |config| {
        config.keys = ["one", "two"].into_iter().filter_map(ApiKey::new).collect();
    });
    let status = |path: &str, header: &str| {
        let headers = if header.is_empty() { vec![] } else { vec![("authorization", header)] };
        Client::connect(server.address).request("GET", path, &headers, "").status
    };
    assert_eq!(status("/v1/models", "Bearer one"), 200);
    assert_eq!(status("/v1/models", "bearer two"), 200);
    for wrong in ["", "Bearer three", "Bearer on", "Bearer onee", "Bearer", "Basic one", "one"] {
        assert_eq!(status("/v1/models", wrong), 401, "{wrong:?}");
        assert_eq!(status("/metrics", wrong), 401, "{wrong:?}");
        assert_eq!(status("/nowhere", wrong), 401, "{wrong:?}");
    }
    for open in ["/health", "/", "/page/main.js", "/page/vendor/katex/katex.js", "/openapi.json"] {
        assert_eq!(status(open, ""), 200, "{open}");
    }
    let answer = Client::connect(server.address).get("/v1/models");
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    assert_eq!(answer.error("code"), "invalid_api_key");
}

#[test]
fn a_foreign_host_is_refused() {
    let server = TestServer::with(Fake::default(), |config| {
        config.allowed_hosts = vec!["models.example.org".into()];
    });
    let status = |host: &str| {
        let headers = [("host", host)];
        Client::connect(server.address).request("GET", "/v1/models", &headers, "").status
    };
    for host in ["localhost:80", "127.0.0.1", "[::1]:8080", "10.0.0.1", "Models.Example.org:1"] {
        assert_eq!(status(host), 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80"] {
        assert_eq!(status(host), 403, "{host}");
    }
    for (version, status) in [("1.1", 400), ("1.0", 200)] {
        let mut client = Client::connect(server.address);
        client.raw(&format!("GET /v1/models HTTP/{version}\r\nconnection: close\r\n\r\n"));
        assert_eq!(client.answer().status, status, "nameless, HTTP/{version}");
    }
}

#[test]
fn web_pages_of_other_origins_are_refused_unless_allowed() {
    let closed = TestServer::start();
    let from = |server: &TestServer, method: &str, headers: &[(&str, &str)]| {
        Client::connect(server.address).request(method, "/v1/models", headers, "")
    };
    let origin = ("origin", "https://app.example");
    assert_eq!(from(&closed, "GET", &[origin]).status, 403);
    let own = [("origin", "http://localhost:80"), ("host", "localhost:80")];
    assert_eq!(from(&closed, "GET", &own).status, 200, "the server's own page");

    let open = TestServer::with(Fake::default(), |config| {
        config.cors_origins = vec!["https://app.example".into()];
        config.keys.extend(ApiKey::new("secret"));
    });
    let preflight = [origin, ("access-control-request-method", "POST")];
    let answer = from(&open, "OPTIONS", &preflight);
    assert_eq!(answer.status, 204);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    // A page on a public address asks whether it may reach a private one.
    let private = "access-control-allow-private-network";
    let asks = ("access-control-request-private-network", "true");
    assert_eq!(answer.header(private), None, "nobody asked");
    let answer = from(&open, "OPTIONS", &[preflight[0], preflight[1], asks]);
    assert_eq!((answer.status, answer.header(private)), (204, Some("true")));
    let foreign = [("origin", "https://other.example"), preflight[1], asks];
    let answer = from(&open, "OPTIONS", &foreign);
    assert_eq!((answer.status, answer.header(private)), (403, None));
    assert_eq!(from(&open, "GET", &[origin, asks]).header(private), None, "no preflight");
    let own = [own[0], own[1], preflight[1], asks];
    assert_eq!(from(&closed, "OPTIONS", &own).header(private), None, "no origin is allowed");
    let answer = from(&open, "GET", &[origin]);
    assert_eq!(answer.status, 401, "the page can read why");
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    let other = from(&open, "GET", &[("origin", "https://other.example")]);
    assert_eq!(other.status, 403);
    assert_eq!(other.header("access-control-allow-origin"), None);
}

#[test]
fn what_is_no_request_is_named() {
    let server = TestServer::start();
    let request = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        Client::connect(server.address).request(method, path, headers, body)
    };
    let chat = "/v1/chat/completions";
    let answer = request("POST", chat, &[JSON], "{\"messages\": [}");
    assert_eq!((answer.status, answer.error("code").as_str()), (400, "invalid_json"));
    assert!(answer.error("message").contains("line 1 column 15"), "{}", answer.text);
    assert_eq!(request("POST", chat, &[JSON], "[]").status, 400);
    assert_eq!(request("POST", chat, &[JSON], &"[".repeat(100_000)).status, 400);
    assert_eq!(request("POST", chat, &[], "{}").status, 415);
    assert_eq!(request("POST", chat, &[("content-type", "text/plain")], "{}").status, 415);
    let charset = [("content-type", "application/json; charset=utf-8")];
    assert_eq!(request("POST", chat, &charset, "{}").error("param"), "messages");
    let answer = request("GET", chat, &[], "");
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    let answer = request("DELETE", "/v1/models", &[], "");
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
    let answer = request("GET", "/v1/nowhere", &[], "");
    assert_eq!((answer.status, answer.error("code").as_str()), (404, "not_found"));
}

#[test]
fn requests_have_ids() {
    let server = TestServer::start();
    let id = |headers: &[(&str, &str)]| {
        let answer = Client::connect(server.address).request("GET", "/health", headers, "");
        answer.header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(id(&[("x-request-id", "trace-1.a:b_c")]), "trace-1.a:b_c");
    assert!(id(&[("x-request-id", "two words")]).starts_with("req_"));
    assert_ne!(id(&[]), id(&[]));
    assert_eq!(server.chat(json!({})).status, 200);
}
