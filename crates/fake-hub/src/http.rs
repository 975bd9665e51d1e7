//! Connections: one request each, and its answer, with or without a fault.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::fault::Fault;
use crate::repository::{git_sha1, is_large, sha256};
use crate::state::{Request, State};

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    content: Vec<u8>,
}

impl Answer {
    fn new(status: u16, headers: Vec<(&'static str, String)>, content: Vec<u8>) -> Self {
        Answer { status, headers, content }
    }

    fn refusal(status: u16, code: &str) -> Self {
        Answer::new(status, vec![("x-error-code", code.to_owned())], Vec::new())
    }
}

/// Reads a request, answers it, and closes.
pub fn serve(connection: &TcpStream, state: &Mutex<State>) {
    let Some(request) = read(connection) else { return };
    let (mut answer, fault) = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.seen.push(request.clone());
        let fault = fault(&mut state, &format!("{} {}", request.method, request.path));
        (usual(&state, &request), fault)
    };
    let whole = matches!(fault, Some(Fault::WholeFile | Fault::WholeCut(_)));
    let before = if let Some(Fault::OtherPart(before)) = fault { before } else { 0 };
    match (&fault, request.from) {
        (Some(Fault::Status(status, headers)), _) => {
            answer = Answer::new(*status, headers.clone(), Vec::new());
        }
        (_, Some(from)) if answer.status == 200 && !whole => {
            let length = answer.content.len();
            let from = from.saturating_sub(before);
            answer
                .headers
                .push(("content-range", format!("bytes {from}-{}/{length}", length.max(1) - 1)));
            answer.status = if from < length { 206 } else { 416 };
            answer.content = answer.content.split_off(from.min(length));
        }
        _ => {}
    }
    // Whoever asked may have left; that is part of some tests.
    let _ = write(connection, answer, fault.as_ref(), request.method == "HEAD");
}

fn read(connection: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(connection).lines();
    let first = lines.next()?.ok()?;
    let (method, rest) = first.split_once(' ')?;
    let path = rest.split(' ').next()?.to_owned();
    let method = method.to_owned();
    let mut request =
        Request { host: String::new(), method, path, authorization: None, from: None };
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "host" => request.host = value.to_owned(),
            "authorization" => request.authorization = Some(value.to_owned()),
            "range" => {
                request.from = value.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok();
            }
            _ => {}
        }
    }
    Some(request)
}

/// The first fault that waits for such a method and path.
fn fault(state: &mut State, asked: &str) -> Option<Fault> {
    let at = state.faults.iter().position(|(part, _)| asked.contains(part.as_str()))?;
    match &state.faults[at].1 {
        Fault::Always(fault) => Some((**fault).clone()),
        _ => Some(state.faults.remove(at).1),
    }
}

fn usual(state: &State, request: &Request) -> Answer {
    let path = request.path.split('?').next().unwrap_or_default();
    if let Some(hash) = path.strip_prefix("/store/") {
        let files = state.repositories.iter().flat_map(|repository| &repository.files);
        let found = files.map(|(_, bytes)| bytes).find(|bytes| sha256(bytes) == hash);
        return match found {
            Some(bytes) => Answer::new(200, Vec::new(), bytes.clone()),
            None => Answer::new(403, Vec::new(), Vec::new()),
        };
    }
    let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
    let (name, revision, file) = match parts[..] {
        ["api", "models", organisation, name, "revision", revision] => {
            (format!("{organisation}/{name}"), revision, None)
        }
        [organisation, name, "resolve", revision, ref file @ ..] => {
            (format!("{organisation}/{name}"), revision, Some(file.join("/")))
        }
        _ => return Answer::new(404, Vec::new(), Vec::new()),
    };
    let Some(repository) = state.repositories.iter().find(|repository| repository.name == name)
    else {
        // To people whom it does not know, the hub says 401.
        let status = if request.authorization.is_some() { 404 } else { 401 };
        return Answer::refusal(status, "RepoNotFound");
    };
    if ![&repository.commit, "main"].contains(&revision) {
        return Answer::refusal(404, "RevisionNotFound");
    }
    let Some(file) = file else {
        let kind = ("content-type", "application/json".to_owned());
        return Answer::new(200, vec![kind], repository.listing().to_string().into_bytes());
    };
    let Some(bytes) = repository.file(&file) else { return Answer::refusal(404, "EntryNotFound") };
    let commit = ("x-repo-commit", repository.commit.clone());
    if is_large(&file) {
        let location = format!("{}/store/{}?signature=secret", state.store, sha256(bytes));
        let linked = ("x-linked-etag", format!("\"{}\"", sha256(bytes)));
        let size = ("x-linked-size", bytes.len().to_string());
        return Answer::new(302, vec![commit, linked, size, ("location", location)], Vec::new());
    }
    Answer::new(200, vec![commit, ("etag", format!("\"{}\"", git_sha1(bytes)))], bytes.to_vec())
}

fn write(
    mut connection: &TcpStream,
    mut answer: Answer,
    fault: Option<&Fault>,
    is_head: bool,
) -> std::io::Result<()> {
    match fault {
        Some(Fault::Corrupt) => answer.content.iter_mut().take(1).for_each(|byte| *byte ^= 1),
        Some(Fault::Longer) => answer.content.extend([0; 1000]),
        Some(Fault::With(headers)) => {
            let replaced = |name: &str| headers.iter().any(|(other, _)| *other == name);
            answer.headers.retain(|(name, _)| !replaced(name));
            answer.headers.extend(headers.iter().cloned());
        }
        Some(Fault::Without(names)) => answer.headers.retain(|(name, _)| !names.contains(name)),
        _ => {}
    }
    let mut head = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !matches!(fault, Some(Fault::Without(names)) if names.contains(&"content-length")) {
        head += &format!("content-length: {}\r\n", answer.content.len());
    }
    head += "\r\n";
    connection.write_all(head.as_bytes())?;
    match fault {
        _ if is_head => Ok(()),
        Some(Fault::Cut(count) | Fault::WholeCut(count)) => {
            connection.write_all(&answer.content[..*count.min(&answer.content.len())])
        }
        Some(Fault::Slow(count, pause)) => {
            for chunk in answer.content.chunks(*count) {
                connection.write_all(chunk)?;
                thread::sleep(*pause);
            }
            Ok(())
        }
        _ => connection.write_all(&answer.content),
    }
}
