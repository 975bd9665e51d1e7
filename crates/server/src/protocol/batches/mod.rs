//! Batches of requests: what answers them, whatever protocol they came in.

mod forms;
pub mod refused;
pub mod told;
pub mod worker;

/// Seconds of a day.
pub const DAY: u64 = 24 * 3600;

/// How long files stay unless a client says otherwise, in seconds.
pub const STAYS: u64 = 30 * DAY;
