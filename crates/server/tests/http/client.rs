//! A small HTTP client that can also do what no client should.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value as Json;

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub text: String,
}

impl Answer {
    /// The header `name`, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The body, which must be JSON.
    pub fn json(&self) -> Json {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// The error's `field`.
    pub fn error(&self, field: &str) -> String {
        let error = &self.json()["error"];
        assert!(error["message"].is_string() && error["type"].is_string(), "{}", self.text);
        error[field].as_str().unwrap_or_default().to_owned()
    }

    /// The data of each event.
    pub fn events(&self) -> Vec<String> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"), "{}", self.text);
        self.text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(str::to_owned)
            .collect()
    }

    /// The events that are JSON; the last one must be `[DONE]`.
    pub fn chunks(&self) -> Vec<Json> {
        let mut events = self.events();
        assert_eq!(events.pop().as_deref(), Some("[DONE]"), "{}", self.text);
        events.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect()
    }
}

/// A connection.
pub struct Client {
    pub stream: TcpStream,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        Client { stream }
    }

    pub fn get(self, path: &str) -> Answer {
        self.request("GET", path, &[], "")
    }

    pub fn post(self, path: &str, body: &Json) -> Answer {
        self.request("POST", path, &[("content-type", "application/json")], &body.to_string())
    }

    /// Sends a request and reads the answer.
    pub fn request(
        mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.send(method, path, headers, body);
        self.answer()
    }

    /// Sends a request.
    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            head.push_str("host: localhost\r\n");
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        self.raw(&format!("{head}\r\n{body}"));
    }

    /// Sends bytes as they are.
    pub fn raw(&mut self, bytes: &str) {
        // The server may have answered and left already.
        let _ = self.stream.write_all(bytes.as_bytes());
    }

    /// Reads until the server closes the connection.
    pub fn answer(self) -> Answer {
        let mut reader = BufReader::new(self.stream);
        let mut line = String::new();
        reader.read_line(&mut line).expect("a status line");
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {line:?}"));
        let mut headers = Vec::new();
        loop {
            line.clear();
            reader.read_line(&mut line).expect("a header");
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut answer = Answer { status, headers, text: String::new() };
        let mut bytes = Vec::new();
        if answer.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = chunk(&mut reader) {
                bytes.extend(chunk);
            }
        } else {
            reader.read_to_end(&mut bytes).expect("a body");
        }
        answer.text = String::from_utf8(bytes).expect("text");
        answer
    }

    /// Reads until `text` has come.
    pub fn read_until(&mut self, text: &str) -> String {
        let mut seen = String::new();
        let mut buffer = [0; 1024];
        while !seen.contains(text) {
            let count = self.stream.read(&mut buffer).expect("more");
            assert!(count > 0, "closed before {text:?}: {seen:?}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        seen
    }
}

fn chunk(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = String::new();
    reader.read_line(&mut line).expect("a size");
    let size = usize::from_str_radix(line.trim(), 16).expect("a size in hexadecimal");
    let mut bytes = vec![0; size + 2];
    reader.read_exact(&mut bytes).expect("a chunk");
    bytes.truncate(size);
    (size > 0).then_some(bytes)
}
