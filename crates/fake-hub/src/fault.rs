//! Faults that a test injects into the hub's answers.

use std::time::Duration;

/// A fault that replaces or damages the usual answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// An answer with this status and these headers, without content.
    Status(u16, Vec<(&'static str, String)>),
    /// The connection is closed after so many bytes of the content.
    Cut(usize),
    /// The content's first byte is another.
    Corrupt,
    /// The whole content, although a part was asked for.
    WholeFile,
    /// The whole content, although a part was asked for, and the connection is closed after so many
    /// bytes.
    WholeCut(usize),
    /// A part that begins so many bytes before the one that was asked for, and says so.
    OtherPart(usize),
    /// The answer has these headers in place of its own.
    With(Vec<(&'static str, String)>),
    /// The answer lacks these headers.
    Without(Vec<&'static str>),
    /// So many bytes at a time, with a pause after each.
    Slow(usize, Duration),
    /// More content than there is in the file.
    Longer,
    /// Not only the next time.
    Always(Box<Fault>),
}

impl Fault {
    /// An answer with this status, no headers and no content.
    pub fn status(status: u16) -> Self {
        Fault::Status(status, Vec::new())
    }

    /// A refusal as the hub words it.
    pub fn refusal(status: u16, code: &str) -> Self {
        Fault::Status(status, vec![("x-error-code", code.to_owned())])
    }

    /// Another address.
    pub fn sent_on(location: &str) -> Self {
        Fault::Status(302, vec![("location", location.to_owned())])
    }
}
