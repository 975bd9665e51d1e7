//! What the scheduler reads of the clock and the memory.

use std::time::{Duration, Instant};

/// What was read at one time.
pub(super) struct Reading {
    /// Times are told as what has passed since then.
    born: Instant,
    /// Bytes in use by weights and by whatever else runs in the process, without the caches.
    pub fixed: u64,
    /// Of that, what was in use while no request ran.
    pub idle: u64,
}

impl Reading {
    /// Before anything was read.
    pub fn begin() -> Reading {
        Reading { born: Instant::now(), fixed: 0, idle: 0 }
    }

    /// What had passed at that time.
    pub fn since(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.born)
    }
}
