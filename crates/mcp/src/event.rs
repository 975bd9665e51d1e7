//! News of a server, which come to who asked it.

use serde_json::Value as Json;

/// Bytes of one message.
pub const LONGEST: usize = 8 << 20;

/// News of a server.
#[derive(Debug)]
pub enum Event {
    /// A message.
    Message(Json),
    /// The server's name for this session.
    Session(String),
    /// A notification has arrived there.
    Sent,
    /// The request of this number has failed, or the whole connection.
    Failed(Option<u64>, Fault),
}

/// The reason why a connection or a request of it has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server has ended.
    Ended,
    /// It does not keep to the protocol.
    Nonsense(String),
    /// It cannot be reached.
    Unreachable(String),
}

/// The messages in `bytes`: one, or an array of them.
pub fn messages(bytes: &[u8]) -> Result<Vec<Json>, Fault> {
    let wrong = |reason: String| {
        let text: String = String::from_utf8_lossy(bytes).chars().take(200).collect();
        Fault::Nonsense(format!("it sent what is no message ({reason}): {text}"))
    };
    match serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))? {
        Json::Array(messages) => Ok(messages),
        message @ Json::Object(_) => Ok(vec![message]),
        _ => Err(wrong("no object".to_owned())),
    }
}
