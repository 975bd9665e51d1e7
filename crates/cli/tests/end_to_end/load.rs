//! Load on a server: the table, the JSON object, and what is refused.

use std::fs;
use std::net::TcpListener;

use serde_json::json;

use crate::serve::{serve, wait_until_ready};
use crate::{finish, interrupt, json, ml, text};

#[test]
fn a_server_is_measured_under_each_load() {
    let (child, address) = serve(&["--parallel", "4"]);
    wait_until_ready(&address);
    let url = format!("http://{address}");
    let common = ["bench", "--url", &url, "-p", "40", "-n", "6", "--requests", "4", "--quiet"];

    let arguments = [&common[..], &["--clients", "1,3", "--json"]].concat();
    let report = json(&arguments);
    assert_eq!((&report["model"], &report["counted_by"]), (&json!("demo"), &json!("usage")));
    let results = report["results"].as_array().unwrap();
    let tests: Vec<_> = results.iter().map(|round| round["test"].as_str().unwrap()).collect();
    assert_eq!(tests, ["c1", "c3"]);
    for round in results {
        assert_eq!((&round["requests"], &round["errors"]), (&json!(4), &json!({})));
        assert_eq!(round["output_tokens"], 4 * 6, "the length is fixed: {round}");
        assert_eq!(round["prompt_tokens"], 4 * report["prompt_tokens"].as_u64().unwrap());
        let first = &round["time_to_first_token_seconds"];
        let times = ["p50", "p95", "p99", "max"].map(|name| first[name].as_f64().unwrap());
        assert!(times[0] > 0.0 && times.is_sorted(), "{first}");
    }

    let chats = json(&[&common[..], &["--api", "chat", "--seed", "3", "--json"]].concat());
    assert_eq!((&chats["seed"], &chats["results"][0]["output_tokens"]), (&json!(3), &json!(24)));

    let output = ml(&[&common[..], &["--clients", "2", "--prompt-ids"]].concat());
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let row = table.lines().nth(2).unwrap();
    assert!(row.starts_with("| c2   |        4 |      0 |"), "{table}");
    assert!(table.contains("demo: answers of 6 tokens, `ignore_eos`; counted by"), "{table}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("requests.jsonl");
    fs::write(&file, "{\"prompt\": \"Once\", \"max_tokens\": 2}\n\"Twice\"\n").unwrap();
    let file = file.to_str().unwrap();
    let given = ["bench", "--url", &url, "--requests-file", file, "-n", "3", "--json", "-q"];
    let given = &json(&given)["results"][0];
    assert_eq!((&given["requests"], &given["errors"]), (&json!(2), &json!({})));

    interrupt(&child);
    assert_eq!(finish(child).0, Some(0));
}

#[test]
fn options_that_mean_nothing_for_a_server_or_without_one_are_refused() {
    for arguments in [
        &["--clients", "2"][..],
        &["--rate", "2"],
        &["--url", "http://127.0.0.1:1", "--shape", "qwen3-0.6b"],
        &["--url", "http://127.0.0.1:1", "--parallel", "2"],
        &["--url", "http://127.0.0.1:1", "--repeat", "2"],
        &["--url", "http://127.0.0.1:1", "--clients", "1", "--rate", "2"],
        &["--url", "http://127.0.0.1:1", "--clients", "0"],
        &["--url", "http://127.0.0.1:1", "--fields", "[1]"],
        &["--url", "https://127.0.0.1"],
        &["--url", "http://127.0.0.1:1", "-n", "0"],
    ] {
        let output = ml(&[&["bench"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

#[test]
fn a_server_that_is_not_there_is_told_with_the_remedy() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let output = ml(&["bench", "--url", &format!("http://{address}"), "-q"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(&format!("{address}: connection refused: start the server")), "{error}");
}
