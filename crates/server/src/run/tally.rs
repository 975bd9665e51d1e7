//! The usage of a request, for the log.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::futures::TaskLocalFuture;

use super::part::Usage;
use crate::error::ApiError;

tokio::task_local! {
    /// The tally of the request that a task answers.
    static CURRENT: Tally;
}

/// The usage of a request so far, and what ended it early. Whoever computes for the request adds
/// to it, and the log reads it as the request ends.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Mutex<Tallied>>);

/// The state of a tally at one moment.
#[derive(Clone, Debug, Default)]
pub struct Tallied {
    /// The model that answers.
    pub model: Option<String>,
    /// Tokens, where there are any.
    pub usage: Option<Usage>,
    /// The reason why the answer broke off, where it did.
    pub error: Option<String>,
}

impl Tally {
    /// The tally of the request that this task answers; one that nobody reads elsewhere.
    pub fn current() -> Tally {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// `answer`, whose task answers the request of this tally.
    pub fn scope<F: Future>(self, answer: F) -> TaskLocalFuture<Tally, F> {
        CURRENT.scope(self, answer)
    }

    /// The model called so answers.
    pub fn answered_by(&self, model: &str) {
        self.with(|tallied| tallied.model = Some(model.to_owned()));
    }

    /// So much was used so far.
    pub fn used(&self, usage: Usage) {
        self.with(|tallied| tallied.usage = Some(usage));
    }

    /// The answer broke off for the reason in `error`.
    pub fn failed(&self, error: &ApiError) {
        self.with(|tallied| tallied.error = Some(error.loggable().to_owned()));
    }

    /// The state at this moment.
    pub fn get(&self) -> Tallied {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn with(&self, change: impl FnOnce(&mut Tallied)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
