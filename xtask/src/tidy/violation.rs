//! A broken rule.

use std::fmt;

/// A broken rule: where, what, and what to do about it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub path: String,
    pub line: usize,
    pub message: String,
}

impl Violation {
    pub fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Violation { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}
