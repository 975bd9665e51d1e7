//! Requests that mean nothing: each has its status, its code, and the field that is at fault.
//!
//! A line of a table is a status, a code, the `param` (`-`: none) and the members of a JSON object,
//! which follow those of the line with `@` above it, after its path. They are text, because much of
//! it is no JSON.

mod raw;

use crate::TestServer;
use crate::client::Client;
use fake_model::FakeModel as Fake;

const TABLES: [&str; 6] = [
    include_str!("sampling.txt"),
    include_str!("chat.txt"),
    include_str!("messages.txt"),
    include_str!("tools.txt"),
    include_str!("completions.txt"),
    include_str!("others.txt"),
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

/// The rows of `table` that are not answered as they say, and how many rows there are.
fn wrong(server: &TestServer, table: &str) -> (Vec<String>, usize) {
    let rows = rows(table);
    let fault = |row: &Row| {
        let headers = [("content-type", "application/json")];
        let answer = Client::connect(server.address).request("POST", row.path, &headers, &row.body);
        if answer.status < 400 {
            return Some(format!("{} {} is answered", row.path, row.body));
        }
        let param = if row.param == "-" { "" } else { row.param };
        let found = (answer.status, answer.error("code"), answer.error("param"));
        let is_right = found == (row.status, row.code.to_owned(), param.to_owned());
        (!is_right).then(|| format!("{} {}\n    {found:?}", row.path, row.body))
    };
    (rows.iter().filter_map(fault).collect(), rows.len())
}

#[test]
fn every_bad_request_is_answered_with_what_is_wrong() {
    let fake = Fake { calls: true, ..Fake::default() };
    let server = TestServer::with(fake, |config| config.strict_fields = true);
    let (mut count, mut faults) = (0, Vec::new());
    for table in TABLES {
        let (wrong, rows) = wrong(&server, table);
        faults.extend(wrong);
        count += rows;
    }
    assert!(faults.is_empty(), "{} of {count}:\n{}", faults.len(), faults.join("\n"));
    assert!(count >= 400, "{count} rows were read");
    let engine_was_asked = server.model.options.lock().unwrap().len();
    assert_eq!(engine_was_asked, 0, "what is refused does not reach the engine");
    assert_eq!(server.chat(serde_json::json!({})).status, 200);
}

#[test]
fn every_bad_request_for_pictures_is_answered_with_what_is_wrong() {
    let (server, painter) = crate::images::server();
    let (wrong, count) = wrong(&server, include_str!("images.txt"));
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 60, "{count} rows were read");
    assert!(painter.asked().is_empty(), "nothing is made");
}
