//! The server with the demo model under load and under faults: many clients, clients that are
//! killed, signals, little memory.
//!
//! Each test prints what it measured. `ML_LOAD_SECONDS` is how long the mixed load lasts.

// A helper of a test may panic and print as the test itself may.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod client;
mod failing;
mod grammars;
mod images;
mod killed;
mod memory;
mod mixed;
mod models;
mod pictures;
mod queue;
mod server;
mod signals;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longer than any answer takes on a slow machine; what hangs fails instead.
const PATIENCE: Duration = Duration::from_secs(60);

/// One test at a time: they measure.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value below which a share of `times` is.
fn percentile(times: &mut [Duration], share: f64) -> Duration {
    times.sort();
    times[((times.len() - 1) as f64 * share).round() as usize]
}
