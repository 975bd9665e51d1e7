//! The one error type of the contract.

use std::fmt;

/// The result of every call of the contract.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, with the name of the thing and, where there are two sides, both.
///
/// Its `Debug` is its text, too, so that a `main` that returns it tells people what is wrong.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No backend of this name is registered.
    BackendNotRegistered {
        /// The name asked for.
        name: String,
        /// The names that are registered, sorted.
        registered: Vec<String>,
    },
    /// The backend is registered but cannot run here.
    BackendNotAvailable {
        /// The backend's name.
        name: String,
        /// Why it cannot run.
        reason: String,
    },
    /// A backend of this name was registered before; the first one stays.
    BackendAlreadyRegistered {
        /// The name.
        name: String,
    },
    /// The registry is empty.
    NoBackends,
    /// Backends are registered, none of them can run here.
    NoBackendAvailable {
        /// Each registered backend with the reason why it cannot run, sorted by name.
        unavailable: Vec<(String, String)>,
    },
    /// An option has a value outside its range.
    InvalidOption {
        /// The option's field name.
        option: &'static str,
        /// The fault and the allowed values.
        reason: String,
    },
    /// An option or a request that this backend or model does not honour.
    Unsupported {
        /// The option's or the feature's name.
        what: String,
        /// Why, and what to do instead.
        reason: String,
    },
    /// A model folder that cannot be loaded.
    Load {
        /// The file or folder.
        path: String,
        /// The fault.
        reason: String,
    },
    /// Messages or text that cannot be turned into a prompt.
    Prompt(String),
    /// The prompt has no tokens.
    EmptyPrompt,
    /// The prompt does not fit the context.
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// The most the context takes.
        limit: usize,
    },
    /// The work does not fit the memory limit; nothing was started.
    Memory {
        /// The thing that needs the memory.
        what: String,
        /// Bytes needed in all.
        needed: u64,
        /// Bytes that are free for it.
        available: u64,
        /// The change that the caller can make.
        remedy: String,
    },
    /// The device had no memory left in the middle of the work: another program took it meanwhile,
    /// or more was needed than the arithmetic said. Later requests may find some.
    OutOfMemory {
        /// The work that was being done.
        what: String,
        /// The message about it, and who holds the memory, where that is known.
        reason: String,
    },
    /// The queue of waiting requests is full.
    QueueFull {
        /// The queue's length.
        limit: usize,
    },
    /// The request was cancelled before it produced anything.
    Cancelled,
    /// The model was closed.
    Closed,
    /// The engine failed during the request.
    Engine(String),
    /// The engine cannot compute any more: its device failed, or another process that computes the
    /// model with it is lost. Every later request gets the same error.
    Unusable(String),
}

/// `count` bytes as a person reads them: `18.2 GiB`, `512.0 MiB`, `17 B`.
fn human_bytes(count: u64) -> String {
    let scaled = |unit: u64| count as f64 / unit as f64;
    match count {
        0x4000_0000.. => format!("{:.1} GiB", scaled(1 << 30)),
        0x10_0000.. => format!("{:.1} MiB", scaled(1 << 20)),
        0x400.. => format!("{:.1} KiB", scaled(1 << 10)),
        _ => format!("{count} B"),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BackendNotRegistered { name, registered } if registered.is_empty() => {
                write!(f, "backend `{name}` not registered; no backends registered")
            }
            Error::BackendNotRegistered { name, registered } => {
                write!(f, "backend `{name}` not registered; registered: {}", registered.join(", "))
            }
            Error::BackendNotAvailable { name, reason } => {
                write!(f, "backend `{name}` not available on this hardware: {reason}")
            }
            Error::BackendAlreadyRegistered { name } => {
                write!(f, "backend `{name}` is already registered")
            }
            Error::NoBackends => {
                write!(f, "no backends registered (call a backend's `register` first)")
            }
            Error::NoBackendAvailable { unavailable } => {
                let reasons: Vec<_> =
                    unavailable.iter().map(|(name, why)| format!("`{name}`: {why}")).collect();
                let reasons = reasons.join("; ");
                write!(f, "no registered backend is available on this hardware: {reasons}")
            }
            Error::InvalidOption { option, reason } => write!(f, "option `{option}`: {reason}"),
            Error::Unsupported { what, reason } => write!(f, "`{what}` is not supported: {reason}"),
            Error::Load { path, reason } => write!(f, "{path}: {reason}"),
            Error::Prompt(reason) => write!(f, "prompt: {reason}"),
            Error::EmptyPrompt => write!(f, "empty prompt after tokenisation"),
            Error::PromptTooLong { tokens, limit } => {
                write!(f, "the prompt has {tokens} tokens, the context takes {limit}")
            }
            Error::Memory { what, needed, available, remedy } => write!(
                f,
                "{what} needs {}, {} free: {remedy}",
                human_bytes(*needed),
                human_bytes(*available)
            ),
            Error::OutOfMemory { what, reason } => {
                write!(f, "{what}: the device is out of memory: {reason}")
            }
            Error::QueueFull { limit } => {
                write!(f, "the queue is full ({limit} requests are waiting); try again later")
            }
            Error::Cancelled => write!(f, "cancelled"),
            Error::Closed => write!(f, "the model is closed"),
            Error::Engine(reason) => f.write_str(reason),
            Error::Unusable(reason) => write!(f, "the model cannot be used any more: {reason}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
