//! Files and batches of requests, of both protocols: a store that outlives the server.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use fake_model::FakeModel as Fake;
use inference_server::Batches;
use serde_json::{Value as Json, json};

use crate::client::{Answer, Client};
use crate::{TestServer, chat};

const PATIENCE: Duration = Duration::from_secs(30);

fn server_in(folder: &Path, fake: Fake, change: impl FnOnce(&mut Batches)) -> TestServer {
    let mut batches = Batches::new(folder.to_owned());
    change(&mut batches);
    TestServer::with(fake, |config| config.batches = Some(batches))
}

fn server(folder: &Path) -> TestServer {
    server_in(folder, Fake { says: vec!["a fox"], ..Fake::default() }, |_| {})
}

/// A form with a file and further fields.
fn upload(server: &TestServer, name: &str, text: &str, fields: &[(&str, &str)]) -> Answer {
    let mut body = String::new();
    for (field, value) in fields {
        body +=
            &format!("--x\r\nContent-Disposition: form-data; name=\"{field}\"\r\n\r\n{value}\r\n");
    }
    body += &format!(
        "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: application/jsonl\r\n\r\n{text}\r\n--x--\r\n"
    );
    let headers = [("content-type", "multipart/form-data; boundary=x")];
    Client::connect(server.address).request("POST", "/v1/files", &headers, &body)
}

fn uploaded(server: &TestServer, text: &str) -> String {
    let answer = upload(server, "a.jsonl", text, &[("purpose", "batch")]);
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["id"].as_str().unwrap().to_owned()
}

fn line(id: &str, body: Json) -> String {
    let line = json!({
        "custom_id": id, "method": "POST", "url": "/v1/chat/completions", "body": body,
    });
    format!("{line}\n")
}

fn delete(server: &TestServer, path: &str) -> Answer {
    let headers = [("content-type", "application/json")];
    Client::connect(server.address).request("DELETE", path, &headers, "")
}

fn begun(server: &TestServer, file: &str) -> String {
    let body = json!({
        "input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h",
        "metadata": {"of": "a test"},
    });
    let answer = server.post("/v1/batches", &body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json()["metadata"]["of"], "a test");
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// The object at `path` once `is_so` holds.
fn wait(server: &TestServer, path: &str, is_so: impl Fn(&Json) -> bool) -> Json {
    let begun = Instant::now();
    loop {
        let json = server.get(path).json();
        if is_so(&json) {
            return json;
        }
        assert!(begun.elapsed() < PATIENCE, "{json}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn over(server: &TestServer, id: &str) -> Json {
    let is_over = |json: &Json| {
        let status = json["status"].as_str().unwrap();
        ["completed", "failed", "cancelled", "expired"].contains(&status)
    };
    wait(server, &format!("/v1/batches/{id}"), is_over)
}

fn lines(server: &TestServer, file: &Json) -> Vec<Json> {
    let answer = server.get(&format!("/v1/files/{}/content", file.as_str().unwrap()));
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_server_without_a_folder_names_the_flag() {
    let server = TestServer::start();
    let file = upload(&server, "a", "a", &[("purpose", "batch")]);
    let body = json!({"requests": []});
    for answer in [
        file,
        server.get("/v1/files"),
        server.get("/v1/batches/batch_1"),
        server.post("/v1/batches", &json!({})),
        server.post("/v1/messages/batches", &body),
        server.get("/v1/messages/batches"),
    ] {
        assert_eq!(answer.status, 403, "{}", answer.text);
        assert!(answer.text.contains("--batch-dir"), "{}", answer.text);
    }
}

#[test]
fn files_are_uploaded_listed_read_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let name = "../../etc/passwd";
    let fields = [
        ("purpose", "batch"),
        ("expires_after[anchor]", "created_at"),
        ("expires_after[seconds]", "3600"),
    ];
    let first = upload(&server, name, "one\r\n--two", &fields).json();
    assert_eq!(first["filename"], "../../etc/passwd");
    assert_eq!((&first["bytes"], &first["object"]), (&json!(10), &json!("file")));
    let lives = first["expires_at"].as_u64().unwrap() - first["created_at"].as_u64().unwrap();
    assert_eq!(lives, 3600);
    let second = uploaded(&server, "second");
    let id = first["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/v1/files/{id}")).json(), first);
    assert_eq!(server.get(&format!("/v1/files/{id}/content")).text, "one\r\n--two");
    let ids = |query: &str| -> Vec<Json> {
        let list = server.get(&format!("/v1/files{query}")).json();
        list["data"].as_array().unwrap().iter().map(|file| file["id"].clone()).collect()
    };
    assert_eq!(ids(""), [json!(second), json!(id)]);
    assert_eq!(ids("?order=asc&limit=1"), [json!(id)]);
    assert_eq!(ids(&format!("?after={second}")), [json!(id)]);
    assert!(ids("?purpose=batch_output").is_empty());
    assert_eq!(server.get("/v1/files?limit=0").status, 400);
    assert_eq!(delete(&server, &format!("/v1/files/{id}")).json()["deleted"], true);
    assert_eq!(delete(&server, &format!("/v1/files/{id}")).status, 404);
    assert_eq!(ids(""), [json!(second)]);
    // No name of a client's is a place of the disk.
    for id in ["..%2f..%2flock", "../lock", "%2e%2e", "file-1.json", "lock", "%00"] {
        for path in ["/v1/files/{}", "/v1/files/{}/content", "/v1/batches/{}"] {
            let answer = server.get(&path.replace("{}", id));
            assert!((400..=405).contains(&answer.status), "{id}: {}", answer.text);
        }
    }
    assert!(folder.path().join("lock").exists());
}

#[test]
fn uploads_that_say_something_else_are_refused_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_in(folder.path(), Fake::default(), |batches| {
        batches.file_bytes = 100;
        batches.bytes = 150;
    });
    let refused = |answer: Answer, status: u16, told: &str| {
        assert_eq!(answer.status, status, "{}", answer.text);
        assert!(answer.error("message").contains(told), "{}", answer.text);
    };
    refused(upload(&server, "a", "a", &[]), 400, "`purpose`: is missing");
    refused(upload(&server, "a", "a", &[("purpose", "vision")]), 400, "files are for batches");
    let twice = [("purpose", "batch"), ("purpose", "batch")];
    refused(upload(&server, "a", "a", &twice), 400, "is given twice");
    refused(upload(&server, "a", "a", &[("other", "b")]), 400, "unknown field `other`");
    let long = "a".repeat(101);
    let purpose = [("purpose", "batch")];
    refused(upload(&server, "a", &long, &purpose), 413, "--max-batch-file");
    uploaded(&server, &long[..90]);
    refused(upload(&server, "a", &long[..90], &purpose), 413, "--max-batch-bytes");
    refused(server.post("/v1/files", &json!({})), 415, "must be a form");
    let broken = [("content-type", "multipart/form-data; boundary=x")];
    let answer = Client::connect(server.address).request("POST", "/v1/files", &broken, "--x\r\n");
    refused(answer, 400, "the form is broken");
    // One that leaves in the middle.
    let mut leaving = Client::connect(server.address);
    leaving.raw(
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900\r\n\
         content-type: multipart/form-data; boundary=x\r\n\r\n--x\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nhalf",
    );
    let names = || -> Vec<String> {
        let entries = fs::read_dir(folder.path().join("files")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let wait_for = |count: usize| {
        let begun = Instant::now();
        while names().len() != count {
            assert!(begun.elapsed() < PATIENCE, "{:?}", names());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for(3);
    drop(leaving);
    wait_for(2);
    // What was refused takes no room.
    uploaded(&server, &long[..60]);
}

#[test]
fn a_batch_answers_its_lines_and_tells_errors_apart() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let text = [
        line("one", chat(json!({"max_tokens": 4}))),
        "\n".to_owned(),
        line("wrong", chat(json!({"max_tokens": "four"}))),
        line("two", chat(json!({}))),
    ];
    let file = uploaded(&server, &text.concat());
    let id = begun(&server, &file);
    let batch = over(&server, &id);
    assert_eq!(batch["status"], "completed", "{batch}");
    assert_eq!(batch["request_counts"], json!({"total": 3, "completed": 2, "failed": 1}));
    assert!(batch["usage"]["total_tokens"].as_u64() > Some(0), "{batch}");
    assert!(batch["completed_at"].is_u64() && batch["in_progress_at"].is_u64());
    let mut answers = lines(&server, &batch["output_file_id"]);
    answers.sort_by_key(|line| line["custom_id"].to_string());
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0]["custom_id"], "one");
    assert_eq!(answers[0]["response"]["status_code"], 200);
    let said = &answers[1]["response"]["body"]["choices"][0]["message"]["content"];
    assert_eq!((said, &answers[1]["error"]), (&json!("a fox"), &Json::Null));
    let errors = lines(&server, &batch["error_file_id"]);
    assert_eq!((errors.len(), &errors[0]["custom_id"]), (1, &json!("wrong")));
    assert_eq!(errors[0]["response"]["status_code"], 400);
    assert_eq!(errors[0]["response"]["body"]["error"]["param"], "max_tokens");
    let output = batch["output_file_id"].as_str().unwrap();
    let record = server.get(&format!("/v1/files/{output}")).json();
    assert_eq!(record["purpose"], "batch_output");
    assert_eq!(server.get("/v1/batches").json()["data"][0]["id"], json!(id));
    // What is over is not cancelled, and its file can go.
    let cancel = format!("/v1/batches/{id}/cancel");
    assert_eq!(server.post(&cancel, &json!({})).status, 400);
    assert_eq!(delete(&server, &format!("/v1/files/{file}")).status, 200);
}

#[test]
fn a_file_with_mistakes_fails_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_in(folder.path(), Fake::default(), |batches| batches.requests = 2);
    let good = line("a", chat(json!({})));
    let failed = |text: &str| -> Vec<Json> {
        let batch = over(&server, &begun(&server, &uploaded(&server, text)));
        assert_eq!(batch["status"], "failed", "{batch}");
        assert!(batch["output_file_id"].is_null() && batch["failed_at"].is_u64());
        batch["errors"]["data"].as_array().unwrap().clone()
    };
    let faults = failed(&format!("{good}{{\n{good}"));
    assert_eq!((&faults[0]["code"], &faults[0]["line"]), (&json!("invalid_json_line"), &json!(2)));
    assert_eq!(faults[1]["code"], "duplicate_custom_id");
    assert_eq!(failed("")[0]["code"], "empty_file");
    let many: String = ["a", "b", "c"].map(|id| line(id, json!({}))).concat();
    assert_eq!(failed(&many)[0]["code"], "too_many_requests");
    assert!(server.model.options().is_empty(), "nothing is answered of a file with mistakes");

    let body = json!({"input_file_id": "file-none", "endpoint": "/v1/chat/completions", "completion_window": "24h"});
    assert_eq!(server.post("/v1/batches", &body).status, 404);
    let body = json!({"input_file_id": "a", "endpoint": "/v1/models", "completion_window": "24h"});
    assert_eq!(server.post("/v1/batches", &body).error("param"), "endpoint");
    let body = json!({"input_file_id": "a", "endpoint": "/v1/chat/completions", "completion_window": "1y"});
    assert_eq!(server.post("/v1/batches", &body).error("param"), "completion_window");
}

#[test]
fn a_batch_goes_on_after_a_restart_without_answering_anything_again() {
    let folder = tempfile::tempdir().unwrap();
    let slow = || Fake { says: vec!["a fox"], delay: Duration::from_millis(60), ..Fake::default() };
    let text: String = (0..60).map(|n| line(&format!("n{n}"), chat(json!({})))).collect();
    let server = server_in(folder.path(), slow(), |_| {});
    let file = uploaded(&server, &text);
    let id = begun(&server, &file);
    let path = format!("/v1/batches/{id}");
    wait(&server, &path, |batch| batch["request_counts"]["completed"].as_u64() >= Some(3));
    // A file that a batch reads stays.
    let refused = delete(&server, &format!("/v1/files/{file}"));
    assert!(refused.status == 400 && refused.error("message").contains(&id), "{}", refused.text);
    let other = Batches::new(folder.path().to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = inference_server::Config {
        listen: ([127, 0, 0, 1], 0).into(),
        batches: Some(other),
        ..Default::default()
    };
    let second = runtime.block_on(inference_server::Server::bind(config));
    assert!(second.err().unwrap().to_string().contains("another server has it"));
    drop(server);

    let journal = folder.path().join(format!("batches/{id}.output"));
    let before = fs::read_to_string(&journal).unwrap();
    let done = before.lines().count();
    assert!((3..60).contains(&done), "{done}");
    // As if it had been killed in the middle of a line.
    fs::write(&journal, format!("{before}{{\"custom_id\": \"n1")).unwrap();
    let server = self::server(folder.path());
    let batch = over(&server, &id);
    assert_eq!(batch["request_counts"], json!({"total": 60, "completed": 60, "failed": 0}));
    assert_eq!(server.model.options().len(), 60 - done);
    let mut ids: Vec<String> = lines(&server, &batch["output_file_id"])
        .iter()
        .map(|l| l["custom_id"].to_string())
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 60);
    drop(server);
    // What is over stays so.
    let server = self::server(folder.path());
    assert_eq!(server.get(&path).json(), batch);
    assert_eq!(lines(&server, &batch["output_file_id"]).len(), 60);
}

#[test]
fn a_batch_that_is_cancelled_keeps_its_answers() {
    let folder = tempfile::tempdir().unwrap();
    let slow = Fake { says: vec!["a fox"], delay: Duration::from_millis(100), ..Fake::default() };
    let server = server_in(folder.path(), slow, |_| {});
    let text: String = (0..200).map(|n| line(&format!("n{n}"), chat(json!({})))).collect();
    let id = begun(&server, &uploaded(&server, &text));
    let path = format!("/v1/batches/{id}");
    wait(&server, &path, |batch| batch["request_counts"]["completed"].as_u64() >= Some(2));
    let answer = server.post(&format!("{path}/cancel"), &json!({}));
    assert_eq!(answer.status, 200);
    let batch = over(&server, &id);
    assert_eq!(batch["status"], "cancelled");
    let completed = batch["request_counts"]["completed"].as_u64().unwrap() as usize;
    assert!((2..200).contains(&completed));
    assert_eq!(lines(&server, &batch["output_file_id"]).len(), completed);
    let errors = lines(&server, &batch["error_file_id"]);
    assert_eq!(
        (errors.len(), &errors[0]["error"]["code"]),
        (200 - completed, &json!("batch_cancelled"))
    );
    // Nothing of it runs on.
    while !server.get("/health").text.contains("\"held\":0") {}
    let seen = server.model.options().len();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(server.model.options().len(), seen);
}

#[test]
fn a_batch_waits_while_others_do() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake { endless: true, ..Fake::default() };
    let server = server_in(folder.path(), fake, |_| {});
    let mut streams: Vec<Client> = Vec::new();
    let headers = [("content-type", "application/json")];
    for _ in 0..2 {
        let mut client = Client::connect(server.address);
        let body = chat(json!({"stream": true})).to_string();
        client.send("POST", "/v1/chat/completions", &headers, &body);
        streams.push(client);
    }
    while server.model.options().len() < 2 {
        std::thread::yield_now();
    }
    // One runs and one waits: the server has one slot.
    let id = begun(&server, &uploaded(&server, &line("a", chat(json!({"max_tokens": 2})))));
    let path = format!("/v1/batches/{id}");
    wait(&server, &path, |batch| batch["status"] == "in_progress");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(server.model.options().len(), 2);
    drop(streams);
    while server.model.options().len() < 3 {
        std::thread::yield_now();
    }
}

#[test]
fn answers_without_room_fail_the_batch_and_those_before_stay() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake { says: vec!["a fox"], ..Fake::default() };
    let text: String = (0..20).map(|n| line(&format!("n{n}"), chat(json!({})))).collect();
    let room = text.len() as u64 + 2000;
    let server = server_in(folder.path(), fake, |batches| batches.bytes = room);
    let batch = over(&server, &begun(&server, &uploaded(&server, &text)));
    assert_eq!(
        (&batch["status"], &batch["errors"]["data"][0]["code"]),
        (&json!("failed"), &json!("storage_full"))
    );
    assert!(!lines(&server, &batch["output_file_id"]).is_empty());
    // Deleting makes room again.
    for file in ["output_file_id", "error_file_id", "input_file_id"] {
        let path = format!("/v1/files/{}", batch[file].as_str().unwrap());
        assert_eq!(delete(&server, &path).status, 200);
    }
    uploaded(&server, &text);
}

#[test]
fn a_batch_whose_time_is_over_expires() {
    let folder = tempfile::tempdir().unwrap();
    let slow = Fake { says: vec!["a fox"], delay: Duration::from_millis(100), ..Fake::default() };
    let server = server_in(folder.path(), slow, |_| {});
    let text: String = (0..100).map(|n| line(&format!("n{n}"), chat(json!({})))).collect();
    let id = begun(&server, &uploaded(&server, &text));
    let path = format!("/v1/batches/{id}");
    wait(&server, &path, |batch| batch["request_counts"]["completed"].as_u64() >= Some(1));
    drop(server);
    let record = folder.path().join(format!("batches/{id}.json"));
    let mut batch: Json = serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap();
    batch["expires"] = json!(1);
    fs::write(&record, batch.to_string()).unwrap();
    let server = self::server(folder.path());
    let batch = over(&server, &id);
    assert_eq!(batch["status"], "expired");
    let errors = lines(&server, &batch["error_file_id"]);
    assert!(errors.iter().all(|line| line["error"]["code"] == "batch_expired"));
    assert_eq!(errors.len() + lines(&server, &batch["output_file_id"]).len(), 100);
    assert!(server.model.options().is_empty());
}
