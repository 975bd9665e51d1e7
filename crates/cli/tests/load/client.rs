//! A client that reads by the byte, and can leave as no client should.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::{Value as Json, json};
use socket2::SockRef;

use crate::PATIENCE;

/// A whole answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    /// As it came, chunks included.
    pub body: String,
}

impl Reply {
    /// The body, which must be JSON.
    pub fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// The events that are JSON. An answer that ends without `[DONE]` has hung or broken off.
    pub fn events(&self) -> Vec<Json> {
        assert_eq!(self.status, 200, "{}", self.body);
        assert!(self.body.contains("data: [DONE]"), "broken off: {}", self.body);
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter_map(|data| serde_json::from_str(data).ok()).collect()
    }

    /// The text of a streamed chat.
    pub fn text(&self) -> String {
        let events = self.events();
        let content =
            |event: &Json| event["choices"][0]["delta"]["content"].as_str().map(String::from);
        events.iter().filter_map(content).collect()
    }
}

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Leaving {
    /// It closes its end.
    Close,
    /// It resets the connection, as the system does for a process that is killed with unread data.
    Reset,
    /// It says that it will send nothing more, and stays.
    Half,
}

/// A connection with a request on it.
pub struct Client {
    stream: TcpStream,
    seen: Vec<u8>,
}

impl Client {
    pub fn send(address: &str, method: &str, path: &str, body: &str) -> std::io::Result<Client> {
        let mut client = Client::connect(address)?;
        client.request(address, method, path, body)?;
        Ok(client)
    }

    pub fn connect(address: &str) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, seen: Vec::new() })
    }

    pub fn request(
        &mut self,
        address: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> std::io::Result<()> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(head.as_bytes())
    }

    /// Reads until `count` events or the end have come; whether there were so many.
    pub fn read_events(&mut self, count: usize) -> bool {
        let mut buffer = [0; 4096];
        while self.seen.windows(6).filter(|window| window == b"data: ").count() < count {
            match self.stream.read(&mut buffer).unwrap() {
                0 => return false,
                read => self.seen.extend_from_slice(&buffer[..read]),
            }
        }
        true
    }

    /// Reads to the end.
    pub fn reply(mut self) -> Reply {
        self.stream.read_to_end(&mut self.seen).unwrap();
        let text = String::from_utf8(self.seen).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer: {text:?}"));
        Reply { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    /// Leaves.
    pub fn leave(mut self, how: Leaving) {
        match how {
            Leaving::Close => {}
            Leaving::Reset => {
                SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
            Leaving::Half => {
                self.stream.shutdown(Shutdown::Write).unwrap();
                // The server takes it for leaving, and closes.
                let _ = self.stream.read_to_end(&mut self.seen);
            }
        }
    }
}

/// A request and its whole answer.
pub fn exchange(address: &str, method: &str, path: &str, body: &str) -> Reply {
    Client::send(address, method, path, body).unwrap().reply()
}

/// A chat about `topic`, with further fields.
pub fn chat(topic: &str, more: Json) -> Json {
    let content = format!("Tell me a story about a {topic}");
    let mut body = json!({"messages": [{"role": "user", "content": content}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}
