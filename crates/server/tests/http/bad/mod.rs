//! Requests that mean nothing: each has its status, its code, and the field that is at fault.
//!
//! A line of a table is a status, a code, the `param` (`-`: none) and the members of a JSON object,
//! which follow those of the line with `@` above it, after its path. They are text, because much of
//! it is no JSON.

mod raw;

use crate::TestServer;
use crate::client::Client;
use fake_model::FakeModel as Fake;

const TABLES: [(&str, &str); 6] = [
    ("sampling", include_str!("sampling.txt")),
    ("chat", include_str!("chat.txt")),
    ("messages", include_str!("messages.txt")),
    ("tools", include_str!("tools.txt")),
    ("completions", include_str!("completions.txt")),
    ("others", include_str!("others.txt")),
];

/// A request and what it must be answered.
struct Row<'a> {
    path: &'a str,
    status: u16,
    code: &'a str,
    param: &'a str,
    body: String,
}

fn rows(table: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let (mut path, mut base) = ("", "");
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        if let Some(head) = line.strip_prefix("@ ") {
            (path, base) = head.split_once(' ').unwrap_or((head, ""));
            continue;
        }
        let mut parts = line.splitn(4, ' ');
        let mut next = || parts.next().unwrap_or_else(|| panic!("not a row: {line}"));
        let (status, code, param, more) = (next().parse().unwrap(), next(), next(), next());
        let comma = if base.is_empty() || more.is_empty() { "" } else { ", " };
        rows.push(Row { path, status, code, param, body: format!("{{{base}{comma}{more}}}") });
    }
    rows
}

#[test]
fn every_bad_request_is_answered_with_what_is_wrong() {
    let server = TestServer::with(Fake { calls: true, ..Fake::default() }, |_| {});
    let (mut count, mut wrong) = (0, Vec::new());
    for (table, text) in TABLES {
        for row in rows(text) {
            count += 1;
            let headers = [("content-type", "application/json")];
            let client = Client::connect(server.address);
            let answer = client.request("POST", row.path, &headers, &row.body);
            if answer.status < 400 {
                wrong.push(format!("{table}: {} {} is answered", row.path, row.body));
                continue;
            }
            let param = if row.param == "-" { "" } else { row.param };
            let found = (answer.status, answer.error("code"), answer.error("param"));
            if found != (row.status, row.code.to_owned(), param.to_owned()) {
                wrong.push(format!("{table}: {} {}\n    {found:?}", row.path, row.body));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 400, "{count} rows were read");
    let engine_was_asked = server.model.options.lock().unwrap().len();
    assert_eq!(engine_was_asked, 0, "what is refused does not reach the engine");
    assert_eq!(server.chat(serde_json::json!({})).status, 200);
}
