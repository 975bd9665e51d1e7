//! Requests of a batch: a line of JSON each.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde_json::{Map, Value as Json};

use super::record::Fault;

/// The most mistakes of a file that are told.
const TOLD: usize = 50;

/// The most characters of a request's own id.
const LONGEST_ID: usize = 512;

/// The most characters of a field's name that a fault tells.
const LONGEST_NAME: usize = 64;

/// A request of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The client's id for it.
    pub id: String,
    /// Its body.
    pub body: Map<String, Json>,
}

/// Bounds of a batch's requests.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Requests.
    pub requests: usize,
    /// Bytes of one.
    pub line_bytes: usize,
}

/// The lines of a file, in order.
pub struct Lines {
    input: BufReader<File>,
    number: usize,
    most: usize,
}

impl Lines {
    /// The lines of the file at `path`, of so many bytes at most.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path, most: usize) -> io::Result<Lines> {
        Ok(Lines { input: BufReader::new(File::open(path)?), number: 0, most })
    }

    /// The next request, which is for `endpoint`; none at the end. Empty lines are passed over.
    ///
    /// # Errors
    /// The system's.
    pub fn next(&mut self, endpoint: &str) -> io::Result<Option<Result<Line, Fault>>> {
        loop {
            let mut bytes = Vec::new();
            let room = self.most as u64 + 1;
            let count = self.input.by_ref().take(room).read_until(b'\n', &mut bytes)?;
            self.number += 1;
            if count == 0 {
                return Ok(None);
            }
            if count > self.most {
                let reason =
                    format!("has more than {} bytes, which no request may have", self.most);
                self.skip()?;
                return Ok(Some(Err(self.fault("line_too_long", None, &reason))));
            }
            let text = bytes.trim_ascii();
            if !text.is_empty() {
                return Ok(Some(self.read(text, endpoint)));
            }
        }
    }

    /// Passes over the rest of a line.
    fn skip(&mut self) -> io::Result<()> {
        let mut rest = Vec::new();
        loop {
            rest.clear();
            let count = self.input.by_ref().take(1 << 16).read_until(b'\n', &mut rest)?;
            if count == 0 || rest.ends_with(b"\n") {
                return Ok(());
            }
        }
    }

    fn read(&self, text: &[u8], endpoint: &str) -> Result<Line, Fault> {
        let json: Json = serde_json::from_slice(text)
            .map_err(|error| self.fault("invalid_json_line", None, &format!("no JSON: {error}")))?;
        let Json::Object(mut fields) = json else {
            return Err(self.fault("invalid_json_line", None, "is no object"));
        };
        let mut take = |name: &str| fields.shift_remove(name);
        let id = match take("custom_id") {
            Some(Json::String(id)) if !id.is_empty() && id.len() <= LONGEST_ID => id,
            Some(_) => {
                let reason = format!("`custom_id` is no text of 1 to {LONGEST_ID} bytes");
                return Err(self.fault("invalid_custom_id", Some("custom_id"), &reason));
            }
            None => {
                let reason = "`custom_id` is missing";
                return Err(self.fault("missing_required_parameter", Some("custom_id"), reason));
            }
        };
        if take("method").is_none_or(|method| method != "POST") {
            return Err(self.fault("invalid_method", Some("method"), "`method` is not `POST`"));
        }
        if take("url").is_none_or(|url| url != endpoint) {
            let reason = format!("`url` is not `{endpoint}`, which the batch is for");
            return Err(self.fault("mismatched_url", Some("url"), &reason));
        }
        let body = match take("body") {
            Some(Json::Object(body)) => body,
            _ => return Err(self.fault("invalid_body", Some("body"), "`body` is no object")),
        };
        if body.get("stream").is_some_and(|stream| *stream != false && !stream.is_null()) {
            let reason = "`body.stream`: answers of a batch are written when they are whole";
            return Err(self.fault("invalid_body", Some("body.stream"), reason));
        }
        match fields.keys().next() {
            Some(name) => {
                let name: String = name.chars().take(LONGEST_NAME).collect();
                let reason = format!("`{name}` is not known");
                Err(self.fault("unknown_parameter", Some(&name), &reason))
            }
            None => Ok(Line { id, body }),
        }
    }

    fn fault(&self, code: &str, param: Option<&str>, reason: &str) -> Fault {
        let number = self.number;
        Fault {
            code: code.to_owned(),
            message: format!("line {number}: {reason}"),
            line: Some(number),
            param: param.map(str::to_owned),
        }
    }
}

/// How many requests for `endpoint` the file at `path` has, or its mistakes.
///
/// # Errors
/// The system's.
pub fn count(path: &Path, endpoint: &str, bounds: Bounds) -> io::Result<Result<usize, Vec<Fault>>> {
    let mut lines = Lines::open(path, bounds.line_bytes)?;
    let (mut seen, mut faults) = (HashSet::new(), Vec::new());
    while let Some(line) = lines.next(endpoint)? {
        match line {
            Err(fault) => faults.push(fault),
            Ok(line) if seen.contains(&line.id) => {
                let reason = format!("`custom_id` `{}` is there twice", line.id);
                faults.push(lines.fault("duplicate_custom_id", Some("custom_id"), &reason));
            }
            Ok(line) => {
                seen.insert(line.id);
            }
        }
        if seen.len() > bounds.requests {
            let reason =
                format!("has more than {} requests (--max-batch-requests)", bounds.requests);
            faults.push(whole("too_many_requests", &reason));
        }
        if faults.len() >= TOLD || seen.len() > bounds.requests {
            break;
        }
    }
    if seen.is_empty() && faults.is_empty() {
        faults.push(whole("empty_file", "has no requests"));
    }
    Ok(if faults.is_empty() { Ok(seen.len()) } else { Err(faults) })
}

fn whole(code: &str, reason: &str) -> Fault {
    let message = format!("the file {reason}");
    Fault { code: code.to_owned(), message, line: None, param: None }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Bounds, count};

    const BOUNDS: Bounds = Bounds { requests: 3, line_bytes: 200 };

    fn counted(text: &[u8]) -> Result<usize, Vec<(String, Option<usize>)>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        fs::write(&path, text).unwrap();
        let told = |faults: Vec<super::Fault>| {
            faults.into_iter().map(|fault| (fault.code, fault.line)).collect()
        };
        count(&path, "/v1/x", BOUNDS).unwrap().map_err(told)
    }

    fn line(id: &str) -> String {
        format!(r#"{{"custom_id": "{id}", "method": "POST", "url": "/v1/x", "body": {{"a": 1}}}}"#)
    }

    #[test]
    fn requests_are_counted_and_empty_lines_are_none() {
        let text = format!("{}\r\n\n{}", line("a"), line("b"));
        assert_eq!(counted(text.as_bytes()), Ok(2));
    }

    #[test]
    fn each_mistake_is_told_with_its_line() {
        let fault = |text: &str| counted(text.as_bytes()).unwrap_err();
        let one = |code: &str, line| vec![(code.to_owned(), line)];
        assert_eq!(fault(""), one("empty_file", None));
        assert_eq!(fault("\n{"), one("invalid_json_line", Some(2)));
        assert_eq!(fault("[]"), one("invalid_json_line", Some(1)));
        assert_eq!(fault(&line("")), one("invalid_custom_id", Some(1)));
        assert_eq!(
            fault(&line("a").replace("custom_id", "id")),
            one("missing_required_parameter", Some(1))
        );
        assert_eq!(fault(&line("a").replace("POST", "GET")), one("invalid_method", Some(1)));
        assert_eq!(fault(&line("a").replace("/v1/x", "/v1/y")), one("mismatched_url", Some(1)));
        assert_eq!(fault(&line("a").replace("{\"a\": 1}", "1")), one("invalid_body", Some(1)));
        assert_eq!(
            fault(&line("a").replace("\"a\": 1", "\"stream\": true")),
            one("invalid_body", Some(1))
        );
        assert_eq!(
            fault(&line("a").replace("\"url\"", "\"x\": 1, \"url\"")),
            one("unknown_parameter", Some(1))
        );
        assert_eq!(fault(&[line("a"), line("a")].join("\n")), one("duplicate_custom_id", Some(2)));
        let long = format!("{}\n{}\n{}", line("a"), " ".repeat(300), line("a"));
        let told =
            [("line_too_long".to_owned(), Some(2)), ("duplicate_custom_id".to_owned(), Some(3))];
        assert_eq!(fault(&long), told);
        let many: Vec<String> = ["a", "b", "c", "d"].map(line).into();
        assert_eq!(fault(&many.join("\n")), one("too_many_requests", None));
        assert!(counted(b"\xff\xfe").is_err());
    }
}
