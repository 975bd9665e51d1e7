//! How much memory pictures take that are made to take much: of each format, by its file or by its
//! sides.

mod bombs;
mod files;
mod mutants;
mod sides;

use std::sync::{Mutex, MutexGuard, PoisonError};

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Held by each test from its beginning: all tests of the process share the allocator.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of `work`, and the bytes that it held at once beside what was there before.
fn measured<T>(work: impl FnOnce() -> T) -> (T, usize) {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let result = work();
    (result, ALLOCATOR.peak_usage().saturating_sub(before))
}
