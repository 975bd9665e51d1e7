//! A connection to a server: messages out, events in.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::error::Error;
use crate::event::{Event, Fault};
use crate::http::Address;
use crate::process::Program;

/// Messages of a server before the one that was asked for.
const MOST: usize = 10_000;

/// Between two looks whether a wait is cancelled.
const LOOK: Duration = Duration::from_millis(50);

/// How long an answer is waited for.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    /// The time of one answer.
    pub limit: Duration,
    /// Tells that nobody waits any more.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

/// The two ways to a server.
pub enum Way {
    /// Its stdin and stdout.
    Program(Program),
    /// Requests of HTTP.
    Address(Address),
}

/// A connection to a server.
pub struct Link {
    server: String,
    way: Way,
    events: Receiver<Event>,
    last: u64,
    /// The server said that its tools are others now.
    pub tools_changed: bool,
}

impl Link {
    /// A connection to `server`, whose `events` come by `way`.
    pub fn new(server: &str, way: Way, events: Receiver<Event>) -> Link {
        Link { server: server.to_owned(), way, events, last: 0, tools_changed: false }
    }

    /// The version of the protocol that both sides speak from now on.
    pub fn speaks(&mut self, version: &str) {
        if let Way::Address(address) = &mut self.way {
            address.version = Some(version.to_owned());
        }
    }

    /// The result of `method`.
    ///
    /// # Errors
    /// The server refuses, fails, or is late; nobody waits any more.
    pub fn request(&mut self, method: &str, params: &Json, wait: &Wait<'_>) -> Result<Json, Error> {
        self.last += 1;
        let id = self.last;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&message, Some(id), wait)?;
        let answered = self.answer(id, method, wait);
        if let Err(Error::Late { .. } | Error::Cancelled(_)) = &answered
            && method != "initialize"
        {
            let params = json!({"requestId": id, "reason": "nobody waits any more"});
            // It is a courtesy, which a server may not be there for.
            let _ = self.send(&notification("notifications/cancelled", &params), None, wait);
        }
        answered
    }

    /// Tells the server something, and waits until it has arrived.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn tell(&mut self, method: &str, wait: &Wait<'_>) -> Result<(), Error> {
        self.send(&notification(method, &json!({})), None, wait)?;
        if let Way::Program(_) = self.way {
            return Ok(());
        }
        let begun = Instant::now();
        loop {
            match self.next(begun, method, wait)? {
                Event::Sent => return Ok(()),
                Event::Failed(None, fault) => return Err(self.fault(&fault)),
                Event::Message(_) | Event::Session(_) | Event::Failed(Some(_), _) => {}
            }
        }
    }

    /// Returns true when the server said since the last call that its tools are others now.
    pub fn take_changes(&mut self) -> bool {
        while let Ok(event) = self.events.try_recv() {
            if let Event::Message(message) = event {
                self.note(&message);
            }
        }
        std::mem::take(&mut self.tools_changed)
    }

    fn answer(&mut self, id: u64, method: &str, wait: &Wait<'_>) -> Result<Json, Error> {
        let begun = Instant::now();
        for _ in 0..MOST {
            let message = match self.next(begun, method, wait)? {
                Event::Message(message) => message,
                Event::Session(session) => {
                    if let Way::Address(address) = &mut self.way {
                        address.session = Some(session);
                    }
                    continue;
                }
                // What was sent by the way, and not for this answer, fails alone.
                Event::Failed(of, fault)
                    if of.map_or(matches!(self.way, Way::Program(_)), |of| of == id) =>
                {
                    return Err(self.fault(&fault));
                }
                Event::Failed(..) | Event::Sent => continue,
            };
            if message.get("method").is_some() {
                self.note(&message);
                self.reply(&message, wait)?;
                continue;
            }
            // Late answers to earlier requests are nobody's any more.
            if message.get("id").and_then(Json::as_u64) != Some(id) {
                continue;
            }
            if let Some(error) = message.get("error") {
                let text = error.get("message").and_then(Json::as_str).unwrap_or("no reason");
                return Err(Error::Refused {
                    server: self.server.clone(),
                    asked: method.to_owned(),
                    code: error.get("code").and_then(Json::as_i64).unwrap_or(0),
                    message: text.chars().take(2000).collect(),
                });
            }
            let result = message.get("result").filter(|result| result.is_object()).cloned();
            let reason = format!("its answer to {method} has no result");
            return result.ok_or_else(|| self.nonsense(reason));
        }
        Err(self.nonsense(format!("it sent {MOST} messages and no answer to {method}")))
    }

    /// Notes what the server tells by itself.
    fn note(&mut self, message: &Json) {
        let method = message.get("method").and_then(Json::as_str);
        self.tools_changed |= method == Some("notifications/tools/list_changed");
    }

    /// Answers a request of the server's.
    fn reply(&mut self, message: &Json, wait: &Wait<'_>) -> Result<(), Error> {
        let Some(id) = message.get("id").filter(|id| !id.is_null()) else { return Ok(()) };
        let reply = match message.get("method").and_then(Json::as_str) {
            Some("ping") => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
            _ => {
                let error = json!({"code": -32601, "message": "the client does not offer this"});
                json!({"jsonrpc": "2.0", "id": id, "error": error})
            }
        };
        self.send(&reply, None, wait)
    }

    fn next(&self, begun: Instant, asked: &str, wait: &Wait<'_>) -> Result<Event, Error> {
        loop {
            if (wait.is_cancelled)() {
                return Err(Error::Cancelled(self.server.clone()));
            }
            if begun.elapsed() >= wait.limit {
                return Err(Error::Late {
                    server: self.server.clone(),
                    asked: asked.to_owned(),
                    limit: wait.limit,
                    said: self.said(),
                });
            }
            match self.events.recv_timeout(LOOK) {
                Ok(event) => return Ok(event),
                Err(RecvTimeoutError::Disconnected) => return Err(self.fault(&Fault::Ended)),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn send(&mut self, message: &Json, id: Option<u64>, wait: &Wait<'_>) -> Result<(), Error> {
        let sent = match &mut self.way {
            Way::Program(program) => program.send(message),
            Way::Address(address) => {
                address.send(message, id, wait.limit);
                Ok(())
            }
        };
        sent.map_err(|fault| self.fault(&fault))
    }

    fn fault(&self, fault: &Fault) -> Error {
        let server = self.server.clone();
        match fault {
            Fault::Ended => Error::Ended { server, said: self.said() },
            Fault::Nonsense(reason) => Error::Nonsense { server, reason: reason.clone() },
            Fault::Unreachable(reason) => {
                let url = match &self.way {
                    Way::Address(address) => address.url.clone(),
                    Way::Program(_) => String::new(),
                };
                Error::Unreachable { server, url, reason: reason.clone() }
            }
        }
    }

    fn nonsense(&self, reason: String) -> Error {
        Error::Nonsense { server: self.server.clone(), reason }
    }

    /// The server's last words, behind a colon.
    fn said(&self) -> String {
        match &self.way {
            Way::Program(program) => program.said(),
            Way::Address(_) => String::new(),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Way::Address(address) = &self.way {
            address.end();
        }
    }
}

fn notification(method: &str, params: &Json) -> Json {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}
