//! The usage of a request's generations, for the log.

use std::sync::{Arc, Mutex, PoisonError};

use super::part::Usage;

/// The usage of a request so far, and what ended it early. Its answer carries it to where the log
/// is written.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Mutex<Tallied>>);

/// The state of a tally at one moment.
#[derive(Clone, Debug, Default)]
pub struct Tallied {
    /// Tokens.
    pub usage: Usage,
    /// The reason why the answer broke off, where it did.
    pub error: Option<String>,
}

impl Tally {
    /// So much was used so far.
    pub fn used(&self, usage: Usage) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).usage = usage;
    }

    /// The answer broke off for this reason.
    pub fn failed(&self, error: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).error = Some(error.to_owned());
    }

    /// The state at this moment.
    pub fn get(&self) -> Tallied {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
