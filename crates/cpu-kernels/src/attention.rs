//! Attention: `softmax(q kᵀ · scale) v` over the keys that each query sees.
//!
//! **A query's result depends on the query and on the keys and values that it sees, in their
//! order, and on nothing else**: not on how many queries are computed at once, on padding before
//! the first key, on other rows of the batch, on where the buffers lie, or on threads (at one
//! [`Level`]). Nothing is summed in blocks whose borders could differ:
//!
//! 1. a score is a sum over `d`, in an order that `d` decides. Where queries see all of a text, the
//!    text decides too;
//! 2. the largest score is the same in any order, and is found before any weight is computed;
//! 3. the sum of the weights runs in sixteen lanes that are counted from the first visible key;
//! 4. each column of the result adds up one key after the other.
//!
//! So threads may share heads, queries, ranges of keys (for scores) and of columns (for values).
//! The price is that the scores of six rows over all their keys are kept by each thread.
//!
//! A key that a query does not see is never read for it: it may hold anything.

mod plain;
mod run;
pub(crate) mod softmax;
pub(crate) mod task;
#[cfg(target_arch = "x86_64")]
#[allow(clippy::needless_range_loop, reason = "one index walks several arrays of registers")]
mod vectors;

pub use task::{Attention, Heads};

use crate::{Error, Level};

/// Computes `task.out`. A query that sees nothing gets zeros.
///
/// # Errors
/// Buffers whose sizes do not fit; nothing is written then.
pub fn attention(task: Attention<'_>) -> Result<(), Error> {
    attention_at(Level::current(), task)
}

/// Computes `task.out` with the instructions of `level`, for tests and comparisons.
///
/// # Errors
/// As [`attention`], and a level that this processor does not have.
pub fn attention_at(level: Level, mut task: Attention<'_>) -> Result<(), Error> {
    level.check()?;
    task.check()?;
    if !task.out.is_empty() {
        run::run(level, &mut task);
    }
    Ok(())
}
