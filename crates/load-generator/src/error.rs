//! Errors in place of a measurement or an answer, with the remedy.

use std::time::Duration;

/// The result of a measurement or of one request.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no measurement, or no answer to one request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// An option that means nothing.
    #[error("{0}")]
    Options(String),
    /// Nobody listens.
    #[error("{address}: connection refused: start the server (`ml serve`), or name another URL")]
    Refused {
        /// Host and port.
        address: String,
    },
    /// The connection could not be made.
    #[error("{address}: cannot connect: {reason}")]
    Connect {
        /// Host and port.
        address: String,
        /// The system's reason.
        reason: String,
    },
    /// The connection broke before the answer was whole.
    #[error("the connection broke off: {0}; see the server's log")]
    Lost(String),
    /// Another status than 200.
    #[error("{path}: HTTP {code}: {body}{}", remedy(*.code, .path))]
    Status {
        /// The status.
        code: u16,
        /// Path of the request.
        path: String,
        /// The beginning of the answer's body.
        body: String,
    },
    /// An error within a stream.
    #[error("the stream ended with an error: {0}")]
    Event(String),
    /// The stream ended, but did not say so.
    #[error("the stream ended without [DONE], after {texts} texts; see the server's log")]
    Unfinished {
        /// Frames with text that came.
        texts: usize,
    },
    /// Not what OpenAI's protocol has.
    #[error("{0}")]
    Answer(String),
    /// The answer took too long.
    #[error("no whole answer after {} s: raise the timeout, or lower the load", .0.as_secs_f64())]
    Timeout(Duration),
    /// The measurement has no threads.
    #[error("cannot start the threads of the measurement: {0}")]
    Runtime(String),
}

impl Error {
    /// The name under which errors of this kind are counted.
    pub fn kind(&self) -> String {
        let name = match self {
            Error::Options(_) => "bad option",
            Error::Refused { .. } => "connection refused",
            Error::Connect { .. } => "no connection",
            Error::Lost(_) => "connection lost",
            Error::Status { code, .. } => return format!("HTTP {code}"),
            Error::Event(_) => "error in the stream",
            Error::Unfinished { .. } => "no [DONE]",
            Error::Answer(_) => "bad answer",
            Error::Timeout(_) => "timeout",
            Error::Runtime(_) => "no threads",
        };
        name.to_owned()
    }

    /// Returns true when the server found fault with the request itself.
    pub(crate) fn refuses_request(&self) -> bool {
        matches!(self, Error::Status { code: 400 | 422, .. })
    }
}

/// The remedy for an HTTP status, as the end of a message.
fn remedy(code: u16, path: &str) -> &'static str {
    match code {
        401 | 403 => ": give the key in ML_BENCH_API_KEY",
        404 if path.ends_with("/chat/completions") => {
            ": check the URL and the model's name, or ask the completions (`--api completions`)"
        }
        404 => ": check the URL and the model's name, or ask for chats (`--api chat`)",
        413 => ": shorten the prompts, or raise the server's limit",
        429 => ": raise the server's queue (`ml serve --queue`), or lower the load",
        503 => ": wait until the server has loaded its model",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn an_error_names_the_remedy() {
        let status = |code, path: &str| Error::Status {
            code,
            path: path.to_owned(),
            body: "{\"error\": 1}".to_owned(),
        };
        let full = status(429, "/v1/completions");
        assert_eq!(
            full.to_string(),
            "/v1/completions: HTTP 429: {\"error\": 1}: raise the server's queue \
             (`ml serve --queue`), or lower the load"
        );
        assert_eq!(full.kind(), "HTTP 429");
        assert!(status(404, "/v1/completions").to_string().contains("--api chat"));
        assert!(status(404, "/v1/chat/completions").to_string().contains("--api completions"));
        assert!(status(500, "/").to_string().ends_with("{\"error\": 1}"));
        assert!(status(422, "/").refuses_request() && !full.refuses_request());
    }
}
