//! Errors of servers, each with the server's name.

use std::time::Duration;

/// Why a server, or a file of servers, is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A file of servers says nothing that can be used.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// Its mistake.
        reason: String,
    },
    /// A server's program cannot be started.
    #[error("MCP server `{server}`: `{command}` cannot be started: {reason}")]
    Start {
        /// The server.
        server: String,
        /// Its program.
        command: String,
        /// The system's reason.
        reason: String,
    },
    /// A server has ended.
    #[error("MCP server `{server}`: it ended{said}")]
    Ended {
        /// The server.
        server: String,
        /// Its last words, behind a colon.
        said: String,
    },
    /// A server does not answer.
    #[error("MCP server `{server}`: no answer to {asked} in {} s{said}", limit.as_secs_f64())]
    Late {
        /// The server.
        server: String,
        /// The method.
        asked: String,
        /// The time that it had.
        limit: Duration,
        /// Its last words, behind a colon.
        said: String,
    },
    /// The person did not want to wait.
    #[error("MCP server `{0}`: the call was cancelled")]
    Cancelled(String),
    /// A server does not keep to the protocol.
    #[error("MCP server `{server}`: {reason}")]
    Nonsense {
        /// The server.
        server: String,
        /// Its fault.
        reason: String,
    },
    /// A server refuses a request.
    #[error("MCP server `{server}`: it refuses {asked}: {message} ({code})")]
    Refused {
        /// The server.
        server: String,
        /// The method.
        asked: String,
        /// The code of the error.
        code: i64,
        /// Its text.
        message: String,
    },
    /// A server cannot be reached.
    #[error("MCP server `{server}`: {url}: {reason}")]
    Unreachable {
        /// The server.
        server: String,
        /// Its address.
        url: String,
        /// Why.
        reason: String,
    },
}

impl Error {
    /// Returns true when nothing more can be asked of the connection.
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Error::Refused { .. } | Error::Late { .. } | Error::Cancelled(_) => false,
            Error::File { .. }
            | Error::Start { .. }
            | Error::Ended { .. }
            | Error::Nonsense { .. }
            | Error::Unreachable { .. } => true,
        }
    }
}
