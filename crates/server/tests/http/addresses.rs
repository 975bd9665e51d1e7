//! Addresses: each path has one name, however clients put their base address together with it.

use inference_server::ApiKey;
use serde_json::{Value as Json, json};

use crate::TestServer;
use crate::client::{Answer, Client};
use fake_model::FakeModel as Fake;

const JSON: (&str, &str) = ("content-type", "application/json");

/// Paths with the methods that they take, and other ways to write each.
fn ways(path: &str) -> Vec<String> {
    let bare = path.strip_prefix("/v1").filter(|bare| bare.starts_with('/')).unwrap_or(path);
    let mut ways = vec![format!("{path}/"), format!("/{path}"), format!("/v1{path}")];
    ways.extend([path.replace('/', "//"), format!("/v1/v1{path}//")]);
    if bare != path {
        ways.push(bare.to_owned());
        ways.push(format!("{bare}/"));
    }
    ways
}

/// An answer without what differs between two of the same request.
fn told(answer: &Answer) -> (u16, Json) {
    let mut json: Json =
        serde_json::from_str(&answer.text).unwrap_or(json!(answer.text.len() / 64));
    for field in ["id", "created", "created_at", "completed_at", "output", "last_used"] {
        json.as_object_mut().map(|fields| fields.remove(field));
    }
    if let Some(choice) = json.pointer_mut("/choices/0/message") {
        choice.as_object_mut().map(|fields| fields.remove("id"));
    }
    for field in ["total_duration", "load_duration", "metadata"] {
        json.as_object_mut().map(|fields| fields.remove(field));
    }
    (answer.status, json)
}

#[test]
fn every_path_answers_with_its_version_and_without_it_and_with_stray_slashes() {
    let server = TestServer::start();
    let document = server.get("/openapi.json").json();
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (path, methods) in document["paths"].as_object().unwrap() {
        if path == "/" || path == "/metrics" {
            continue;
        }
        let path = path.replace("{model}", "fake").replace("{id}", "resp_0");
        let body = match path.as_str() {
            path if path.ends_with("/completions") && !path.contains("chat") => {
                json!({"prompt": "a"})
            }
            "/v1/messages" => json!({"messages": messages, "max_tokens": 9, "model": "fake"}),
            "/v1/responses" => json!({"input": "a", "store": false}),
            "/api/chat" => json!({"model": "fake", "messages": messages, "stream": false}),
            _ => json!({"messages": messages}),
        };
        let method = if methods.get("post").is_some() { "POST" } else { "GET" };
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let ask = |path: &str| {
            told(&Client::connect(server.address).request(method, path, &[JSON], &body))
        };
        let named = ask(&path);
        for way in ways(&path) {
            assert_eq!(ask(&way), named, "{method} {way}");
        }
    }
    let page = server.get("/").text;
    assert!(server.get("//").text == page && page.contains("<html"));
    assert_eq!(server.get("/v1").status, 404, "no page");
    assert_eq!(server.get("/models?limit=0").error("param"), "limit", "queries stay");
}

#[test]
fn what_guards_a_path_guards_it_by_every_name() {
    let server = TestServer::with(Fake::default(), |config| {
        config.keys.extend(ApiKey::new("secret"));
        config.cors_origins = vec!["https://app.example".into()];
        config.limits.body_bytes = 1000;
    });
    let ask = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        Client::connect(server.address).request(method, path, headers, body)
    };
    let key = ("authorization", "Bearer secret");
    for path in ways("/v1/chat/completions") {
        assert_eq!(ask("POST", &path, &[JSON], "{}").status, 401, "{path}");
        assert_eq!(ask("POST", &path, &[JSON, key, ("host", "evil.example")], "{}").status, 403);
        let foreign = ("origin", "https://evil.example");
        assert_eq!(ask("POST", &path, &[JSON, key, foreign], "{}").status, 403, "{path}");
        let preflight =
            [("origin", "https://app.example"), ("access-control-request-method", "POST")];
        assert_eq!(ask("OPTIONS", &path, &preflight, "").status, 204, "{path}");
        let large = "x".repeat(2000);
        assert_eq!(ask("POST", &path, &[JSON, key], &large).status, 413, "{path}");
        let get = ask("GET", &path, &[key], "");
        assert_eq!((get.status, get.header("allow")), (405, Some("POST")), "{path}");
    }
    // What needs no key needs none by any name.
    for path in ["/health/", "//health", "/v1/health"] {
        assert_eq!(ask("GET", path, &[], "").status, 200, "{path}");
    }
    let metrics = ask("GET", "//metrics/", &[key], "").text;
    let endpoints: std::collections::BTreeSet<_> = metrics
        .lines()
        .filter_map(|line| line.split("endpoint=\"").nth(1)?.split('"').next())
        .collect();
    assert_eq!(endpoints, ["/health", "/v1/chat/completions"].into(), "one label a route");
}

#[test]
fn a_path_that_leads_nowhere_names_the_nearest_one() {
    let server = TestServer::start();
    for (path, nearest) in [
        ("/v1/chat/completion", "`/v1/chat/completions`"),
        ("/openai/v1/embeddings", "`/v1/embeddings`"),
        ("/v1/model", "`/v1/models`"),
        ("/v1/completio", "`/v1/completions`"),
        ("/v1", "`/"),
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.error("code").as_str()), (404, "not_found"));
        let message = answer.error("message");
        assert!(message.contains(&format!("the nearest path is {nearest}")), "{message}");
    }
    let long = server.get(&format!("/{}", "a".repeat(9000)));
    assert!(long.status == 404 && long.text.len() < 500, "{}", long.text.len());
    let ollama = server.get("/api/chats").json();
    assert!(ollama["error"].as_str().unwrap().contains("`/api/chat`"), "{ollama}");
}

#[test]
fn a_word_in_the_place_of_an_id_is_a_path_that_there_is_not() {
    let server = TestServer::start();
    let ask =
        |method: &str, path: &str| Client::connect(server.address).request(method, path, &[], "");
    for path in ["/v1/responses/compact", "/responses/compact/", "/v1/models/pull", "/models/pull"]
    {
        let answer = ask("POST", path);
        assert_eq!((answer.status, answer.error("code").as_str()), (404, "not_found"), "{path}");
    }
    for path in ["/v1/responses/resp_1", "/v1/models/fake"] {
        assert_eq!(ask("POST", path).status, 405, "{path}");
    }
}

#[test]
fn anthropics_clients_read_their_own_errors_on_every_path() {
    let server = TestServer::start();
    let version = [("anthropic-version", "2023-06-01")];
    let ask = |path: &str, headers: &[(&str, &str)]| {
        Client::connect(server.address).request("GET", path, headers, "").json()
    };
    for (path, kind) in [
        ("/v1/files", "permission_error"),
        ("/v1/skills", "not_found_error"),
        ("/v1/models/other", "not_found_error"),
        ("/v1/messages/batches", "permission_error"),
        ("/messages/batches", "permission_error"),
    ] {
        let error = ask(path, &version);
        assert_eq!(
            (&error["type"], &error["error"]["type"]),
            (&json!("error"), &json!(kind)),
            "{path}"
        );
    }
    assert!(ask("/v1/files", &[])["error"]["code"].is_string(), "OpenAI's");
    assert!(ask("/api/nothing", &version)["error"].is_string(), "Ollama's");
}
