//! Events that a pull reports while it runs.

use std::time::Duration;

/// An event of a pull.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// It is known what is needed.
    Planned {
        /// The files.
        files: &'a [Planned],
    },
    /// So much of a file is there.
    Bytes {
        /// The file.
        path: &'a str,
        /// Bytes from its beginning.
        done: u64,
    },
    /// A file is whole and right.
    Done {
        /// The file.
        path: &'a str,
    },
    /// Another process fetches the file; it is waited for.
    Waiting {
        /// The file.
        path: &'a str,
    },
    /// Something did not go, and is tried again after a wait.
    Again {
        /// The file, or the list of files.
        path: &'a str,
        /// The cause of the failure.
        reason: &'a str,
        /// The wait.
        wait: Duration,
    },
}

/// A file that a model needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its path in the repository.
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// Bytes that the cache has already.
    pub present: u64,
}
