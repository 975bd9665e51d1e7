//! Cancelling a request from any thread, at once or at a deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A flag that its clones share: once cancelled, cancelled for all of them.
///
/// A backend looks at it while a request is queued, between prefill chunks and between tokens.
///
/// ```
/// let token = inference_core::CancelToken::new();
/// let other = token.clone();
/// other.cancel();
/// assert!(token.is_cancelled());
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancelToken {
    flag: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl CancelToken {
    /// A token that nothing has cancelled yet and that has no deadline.
    pub fn new() -> Self {
        CancelToken::default()
    }

    /// A token that counts as cancelled from `deadline` on.
    pub fn with_deadline(deadline: Instant) -> Self {
        CancelToken { flag: Arc::default(), deadline: Some(deadline) }
    }

    /// A clone of this token that also ends at `deadline`, or at its own where that is earlier.
    pub fn and_deadline(&self, deadline: Instant) -> Self {
        let deadline = self.deadline.map_or(deadline, |own| own.min(deadline));
        CancelToken { flag: Arc::clone(&self.flag), deadline: Some(deadline) }
    }

    /// When the token cancels itself.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Cancels this token and all its clones. Calling it again changes nothing.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Release);
    }

    /// Returns true once [`cancel`](Self::cancel) was called on a clone or the deadline has passed.
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Acquire) || self.deadline.is_some_and(|at| Instant::now() >= at)
    }
}
