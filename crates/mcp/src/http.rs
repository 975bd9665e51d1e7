//! Servers at an address: a request of HTTP for each message, answered by one or by a stream.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use serde_json::Value as Json;
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

use crate::event::{Event, Fault, LONGEST, messages};

/// Messages that wait to be read.
const WAITING: usize = 8;

/// An answer may come so much after nobody waits for it, so that it is told as late.
const LATER: Duration = Duration::from_secs(2);

/// How long the end of a session may take.
const ENDS: Duration = Duration::from_secs(2);

/// The header that names a session.
const SESSION: &str = "mcp-session-id";

/// A server's address.
#[derive(Clone)]
pub struct Address {
    /// Its URL.
    pub url: String,
    headers: Vec<(String, String)>,
    agent: Agent,
    events: SyncSender<Event>,
    /// The server's name for this session.
    pub session: Option<String>,
    /// The version of the protocol, once both sides have agreed on one.
    pub version: Option<String>,
}

impl Address {
    /// The server at `url`; what it sends comes as events.
    pub fn new(url: &str, headers: &[(String, String)]) -> (Address, Receiver<Event>) {
        let (events, received) = sync_channel(WAITING);
        // A redirect would take the headers, and the keys in them, to another server.
        let agent = Agent::config_builder().http_status_as_error(false).max_redirects(0);
        let agent = agent.max_redirects_will_error(false).build().into();
        let (url, headers) = (url.to_owned(), headers.to_vec());
        (Address { url, headers, agent, events, session: None, version: None }, received)
    }

    /// Sends `message`, whose number is `id` where it wants an answer, on a thread of its own.
    pub fn send(&self, message: &Json, id: Option<u64>, limit: Duration) {
        let (address, text) = (self.clone(), message.to_string());
        thread::spawn(move || {
            let event = match address.post(&text, id, limit + LATER) {
                Ok(()) if id.is_none() => Event::Sent,
                Ok(()) => return,
                Err(fault) => Event::Failed(id, fault),
            };
            // Nobody waits any more where this fails.
            let _ = address.events.send(event);
        });
    }

    fn post(&self, text: &str, id: Option<u64>, limit: Duration) -> Result<(), Fault> {
        let request = self.agent.post(&self.url).config().timeout_global(Some(limit)).build();
        let request = request.header("accept", "application/json, text/event-stream");
        let mut request = request.header("content-type", "application/json");
        for (name, value) in self.headers() {
            request = request.header(name, value);
        }
        let answer = request.send(text).map_err(|error| unreachable(&error))?;
        if let Some(session) = header(answer.headers(), SESSION) {
            let _ = self.events.send(Event::Session(session.to_owned()));
        }
        let kind = header(answer.headers(), "content-type").unwrap_or_default().to_owned();
        match answer.status().as_u16() {
            200..=299 if id.is_none() => Ok(()),
            200 if kind.starts_with("text/event-stream") => self.stream(answer, id),
            200 if kind.starts_with("application/json") => {
                self.pass(&body(answer)?, id)?;
                Ok(())
            }
            status @ 200..=299 => Err(Fault::Nonsense(format!(
                "it answered with the status {status} and the type `{kind}`, and with no message"
            ))),
            status => Err(refused(status, answer, self.session.is_some())),
        }
    }

    fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let session = self.session.as_deref().map(|session| (SESSION, session));
        let version = self.version.as_deref().map(|version| ("mcp-protocol-version", version));
        own.chain(session).chain(version)
    }

    /// Passes the messages of a stream on, to the answer of `id`.
    fn stream(&self, answer: Response<Body>, id: Option<u64>) -> Result<(), Fault> {
        let mut input = BufReader::new(answer.into_body().into_reader());
        let mut data = Vec::new();
        loop {
            let mut line = Vec::new();
            let room = (LONGEST + 1).saturating_sub(data.len()) as u64;
            let taken = input.by_ref().take(room).read_until(b'\n', &mut line);
            let count = taken.map_err(|error| Fault::Unreachable(error.to_string()))?;
            if data.len() + count > LONGEST {
                let reason = format!("it sent a message of more than {LONGEST} bytes");
                return Err(Fault::Nonsense(reason));
            }
            let text = line.trim_ascii_end();
            if let Some(more) = text.strip_prefix(b"data:") {
                data.extend_from_slice(more.strip_prefix(b" ").unwrap_or(more));
                data.push(b'\n');
            }
            let is_end = text.is_empty();
            if is_end && !data.trim_ascii().is_empty() && self.pass(data.trim_ascii(), id)? {
                return Ok(());
            }
            if is_end {
                data.clear();
            }
            if count == 0 {
                return Err(Fault::Nonsense("its stream ended without an answer".to_owned()));
            }
        }
    }

    /// Passes messages on; true where the answer of `id` was among them.
    fn pass(&self, bytes: &[u8], id: Option<u64>) -> Result<bool, Fault> {
        let mut has_answered = false;
        for message in messages(bytes)? {
            let is_answer = message.get("method").is_none() && message.get("id").is_some();
            has_answered |= is_answer && message["id"].as_u64() == id;
            if self.events.send(Event::Message(message)).is_err() {
                return Ok(true);
            }
        }
        Ok(has_answered)
    }
}

impl Address {
    /// Ends the session, where there is one.
    pub fn end(&self) {
        if self.session.is_none() {
            return;
        }
        let request = self.agent.delete(&self.url).config().timeout_global(Some(ENDS)).build();
        let request =
            self.headers().fold(request, |request, (name, value)| request.header(name, value));
        // A server may not offer it.
        let _ = request.call();
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn body(answer: Response<Body>) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    let input = answer.into_body().into_reader().take(LONGEST as u64 + 1);
    let read = { input }.read_to_end(&mut bytes);
    read.map_err(|error| Fault::Unreachable(error.to_string()))?;
    match bytes.len() > LONGEST {
        true => Err(Fault::Nonsense(format!("it sent a message of more than {LONGEST} bytes"))),
        false => Ok(bytes),
    }
}

fn refused(status: u16, answer: Response<Body>, has_session: bool) -> Fault {
    let remedy = match status {
        300..=399 => {
            let to = header(answer.headers(), "location").unwrap_or("elsewhere").to_owned();
            return Fault::Unreachable(format!("it sends on to {to}: name that address"));
        }
        401 | 403 => ": give what it wants in `headers`, such as `Authorization`",
        404 if has_session => ": its session is over",
        405 => ": it may speak the protocol's old form, which is not supported",
        _ => "",
    };
    let text = body(answer).unwrap_or_default();
    let text: String = String::from_utf8_lossy(&text).trim().chars().take(300).collect();
    let said = if text.is_empty() { String::new() } else { format!("; it says: {text}") };
    Fault::Unreachable(format!("it answered with the status {status}{remedy}{said}"))
}

fn unreachable(error: &ureq::Error) -> Fault {
    let text = error.to_string();
    Fault::Unreachable(text.split(" (os error").next().unwrap_or(&text).to_owned())
}
