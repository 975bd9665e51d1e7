//! The clock and the memory, as the scheduler reads them.

use std::time::{Duration, Instant};

/// The memory in use at one time, and the origin of times.
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

    /// The time from [`begin`](Self::begin) to `at`.
    pub fn since(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.born)
    }
}
