//! Batches of messages, in Anthropic's protocol.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use fake_model::FakeModel as Fake;
use inference_server::Batches;
use serde_json::{Value as Json, json};

use crate::TestServer;
use crate::client::{Answer, Client};

const PATIENCE: Duration = Duration::from_secs(30);

fn server(folder: &Path, delay: Duration) -> TestServer {
    let batches = Batches::new(folder.to_owned());
    let fake = Fake { says: vec!["a fox"], delay, ..Fake::default() };
    TestServer::with(fake, |config| config.batches = Some(batches))
}

fn request(id: &str, more: Json) -> Json {
    let mut params = json!({
        "model": "fake", "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}],
    });
    crate::merge(&mut params, more);
    json!({"custom_id": id, "params": params})
}

fn create(server: &TestServer, requests: &[Json]) -> Answer {
    server.post("/v1/messages/batches", &json!({"requests": requests}))
}

fn over(server: &TestServer, id: &str) -> Json {
    let begun = Instant::now();
    loop {
        let batch = server.get(&format!("/v1/messages/batches/{id}")).json();
        if batch["processing_status"] == "ended" {
            return batch;
        }
        let counts = &batch["request_counts"];
        assert_eq!(counts["succeeded"], 0, "told once all is over");
        assert!(begun.elapsed() < PATIENCE, "{batch}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn results(server: &TestServer, id: &str) -> Vec<Json> {
    let answer = server.get(&format!("/v1/messages/batches/{id}/results"));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let lines = answer.text.lines();
    let mut lines: Vec<Json> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.sort_by_key(|line| line["custom_id"].to_string());
    lines
}

#[test]
fn each_request_of_a_batch_has_a_result() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), Duration::ZERO);
    let requests = [request("a", json!({})), request("b", json!({"max_tokens": "x"}))];
    let created = create(&server, &requests).json();
    assert_eq!((&created["type"], &created["results_url"]), (&json!("message_batch"), &Json::Null));
    let id = created["id"].as_str().unwrap();
    let batch = over(&server, id);
    let counts =
        json!({"processing": 0, "succeeded": 1, "errored": 1, "canceled": 0, "expired": 0});
    assert_eq!(batch["request_counts"], counts);
    let url = batch["results_url"].as_str().unwrap();
    assert_eq!(url, format!("http://localhost/v1/messages/batches/{id}/results"));
    let results = results(&server, id);
    assert_eq!(results[0]["result"]["type"], "succeeded");
    assert_eq!(results[0]["result"]["message"]["content"][0]["text"], "a fox");
    let error = &results[1]["result"]["error"];
    let told = (&error["type"], &error["error"]["type"]);
    assert_eq!(told, (&json!("error"), &json!("invalid_request_error")));
    // OpenAI's paths do not know it.
    assert_eq!(server.get(&format!("/v1/batches/{id}")).status, 404);
    assert!(server.get("/v1/files").json()["data"].as_array().unwrap().is_empty());

    let headers = [("content-type", "application/json")];
    let path = format!("/v1/messages/batches/{id}");
    let gone = Client::connect(server.address).request("DELETE", &path, &headers, "");
    assert_eq!(gone.json(), json!({"id": id, "type": "message_batch_deleted"}));
    assert_eq!(server.get(&path).status, 404);
    assert_eq!(fs::read_dir(folder.path().join("batches")).unwrap().count(), 0);
}

#[test]
fn requests_that_cannot_be_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), Duration::ZERO);
    let refused = |requests: &[Json], told: &str| {
        let answer = create(&server, requests);
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.error("message").contains(told), "{}", answer.text);
    };
    refused(&[], "requests");
    let twice = [request("a", json!({})), request("a", json!({}))];
    refused(&twice, "`requests[1].custom_id`: is there twice");
    refused(&[request("../a", json!({}))], "`requests[0].custom_id`: has 1 to 64 letters");
    refused(&[request("a", json!({"stream": true}))], "`requests[0].params.stream`");
    refused(&[json!({"custom_id": "a"})], "requests[0].params");
    refused(&[json!({"custom_id": "a", "params": {}, "x": 1})], "requests[0].x");
    assert_eq!(fs::read_dir(folder.path().join("batches")).unwrap().count(), 0);
}

#[test]
fn a_cancelled_batch_goes_through_a_restart_and_tells_what_became_of_each() {
    let folder = tempfile::tempdir().unwrap();
    let slow = Duration::from_millis(80);
    let server = server(folder.path(), slow);
    let requests: Vec<Json> = (100..250).map(|n| request(&format!("n{n}"), json!({}))).collect();
    let id = create(&server, &requests).json()["id"].as_str().unwrap().to_owned();
    let journal = folder.path().join(format!("batches/{id}.output"));
    let lines = || fs::read_to_string(&journal).unwrap_or_default().lines().count();
    let begun = Instant::now();
    while lines() < 2 {
        assert!(begun.elapsed() < PATIENCE);
    }
    let results_path = format!("/v1/messages/batches/{id}/results");
    assert_eq!(server.get(&results_path).status, 400);
    drop(server);
    let before = lines();
    let server = self::server(folder.path(), slow);
    while lines() < before + 2 {
        assert!(begun.elapsed() < PATIENCE);
    }
    let path = format!("/v1/messages/batches/{id}/cancel");
    let cancelling = server.post(&path, &json!({})).json();
    assert!(cancelling["cancel_initiated_at"].is_string());
    let batch = over(&server, &id);
    let counts = &batch["request_counts"];
    let succeeded = counts["succeeded"].as_u64().unwrap();
    assert!(succeeded >= 4 && counts["canceled"].as_u64() == Some(150 - succeeded), "{counts}");
    let results = results(&server, &id);
    let of = |kind: &str| results.iter().filter(|line| line["result"]["type"] == kind).count();
    assert_eq!((of("succeeded") + of("canceled"), results.len()), (150, 150));
    assert_eq!(of("succeeded") as u64, succeeded);
    // Cancelled twice, it stays as it is, also after one more restart.
    assert_eq!(server.post(&path, &json!({})).json()["processing_status"], "ended");
    drop(server);
    let server = self::server(folder.path(), slow);
    assert_eq!(over(&server, &id)["request_counts"], *counts);
}

#[test]
fn lists_have_pages_in_both_directions() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), Duration::ZERO);
    let ids: Vec<String> = (0..4)
        .map(|_| create(&server, &[request("a", json!({}))]).json()["id"].as_str().unwrap().into())
        .collect();
    let page = |query: &str| {
        let list = server.get(&format!("/v1/messages/batches{query}")).json();
        let found: Vec<String> = list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|b| b["id"].as_str().unwrap().into())
            .collect();
        (found, list["has_more"].as_bool().unwrap())
    };
    let newest: Vec<String> = ids.iter().rev().cloned().collect();
    assert_eq!(page(""), (newest.clone(), false));
    assert_eq!(page("?limit=3"), (newest[..3].to_vec(), true));
    assert_eq!(page(&format!("?limit=1&after_id={}", ids[2])), (newest[2..3].to_vec(), true));
    assert_eq!(page(&format!("?limit=1&before_id={}", ids[1])), (newest[1..2].to_vec(), true));
    assert_eq!(page(&format!("?before_id={}", ids[2])), (newest[..1].to_vec(), false));
    assert_eq!(server.get("/v1/messages/batches?after_id=x").status, 400);
    assert_eq!(server.get("/v1/messages/batches?limit=1001").status, 400);
}
