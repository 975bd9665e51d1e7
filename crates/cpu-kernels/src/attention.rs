//! Attention: `softmax(q kᵀ · scale) v` over the keys that each query sees.
//!
//! **A query's result depends on the query and on the keys and values that it sees, in their
//! order, and on nothing else**: not on how many queries are computed at once, on padding before
//! the first key, on other rows of the batch, on where the buffers lie, or on threads (at one
//! [`Level`]). Nothing is summed in blocks whose borders could differ:
//!
//! 1. a score is a sum over `d`, in an order that `d` decides;
//! 2. the largest score is the same in any order, and is found before any weight is computed;
//! 3. the sum of the weights runs in sixteen lanes that are counted from the first visible key;
//! 4. each column of the result adds up one key after the other.
//!
//! So threads may share heads, queries, ranges of keys (for scores) and of columns (for values).
//! The price is that the scores of six rows over all their keys are kept by each thread.
//!
//! A key that a query does not see is never read for it: it may hold anything.

mod plain;
mod softmax;
mod tile;

#[cfg(target_arch = "x86_64")]
pub(crate) use self::tile::{Mix, Tile};

use std::ops::Range;

use crate::problem::buffer;
use crate::{Dtype, Error, Level};

/// One of q, k and v: `[b, heads, positions, values]`, each position's values side by side.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a> {
    /// From the first value to the last.
    pub data: &'a [u8],
    /// Elements from one batch row, head and position to the next.
    pub strides: [usize; 3],
}

/// `out = softmax(q kᵀ · scale) v`.
///
/// Keys are positions 0..`n`; the queries stand at the last `l` of them. Where there are fewer keys
/// than queries, the first queries stand before all keys.
#[derive(Debug)]
pub struct Attention<'a> {
    /// Of q, k, v and the result.
    pub dtype: Dtype,
    /// Rows of the batch.
    pub b: usize,
    /// Heads of q and of the result, a multiple of `n_kv_heads`.
    pub n_heads: usize,
    /// Heads of k and v, each shared by as many neighbouring heads of q.
    pub n_kv_heads: usize,
    /// Queries of each row.
    pub l: usize,
    /// Keys of each row.
    pub n: usize,
    /// Values of a head of q and k.
    pub d: usize,
    /// Values of a head of v and of the result.
    pub dv: usize,
    /// `[b, n_heads, l, d]`.
    pub q: Heads<'a>,
    /// `[b, n_kv_heads, n, d]`.
    pub k: Heads<'a>,
    /// `[b, n_kv_heads, n, dv]`.
    pub v: Heads<'a>,
    /// What scores are multiplied with.
    pub scale: f32,
    /// Scores are then squashed to ± this by tanh.
    pub softcap: Option<f32>,
    /// One more score for each head of q, which takes part in the softmax and adds nothing; or
    /// none.
    pub sinks: &'a [f32],
    /// The first key of each row of the batch that exists; empty: 0 for all.
    pub starts: &'a [i32],
    /// Whether a query sees only the keys up to its own place.
    pub causal: bool,
    /// A query sees only this many keys up to its own place, itself included.
    pub window: Option<usize>,
    /// `[b, l, n_heads, dv]`.
    pub out: &'a mut [u8],
}

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
        tile::run(level, &mut task);
    }
    Ok(())
}

impl Attention<'_> {
    /// Checks every buffer against the sizes: what all kernels rely on.
    fn check(&self) -> Result<(), Error> {
        let Attention { b, n_heads, n_kv_heads, l, n, d, dv, dtype, .. } = *self;
        if n_kv_heads == 0 || !n_heads.is_multiple_of(n_kv_heads) || d == 0 {
            let text = format!("{n_heads} heads of {d} values cannot share {n_kv_heads} of keys");
            return Err(Error(text));
        }
        self.q.check("q", [b, n_heads, l, d], dtype)?;
        self.k.check("k", [b, n_kv_heads, n, d], dtype)?;
        self.v.check("v", [b, n_kv_heads, n, dv], dtype)?;
        for (name, found, expected) in
            [("starts", self.starts.len(), b), ("sinks", self.sinks.len(), n_heads)]
        {
            if found != 0 && found != expected {
                return Err(Error(format!("{found} {name}, expected {expected}")));
            }
        }
        buffer("out", self.out, &[b, l, n_heads, dv, dtype.size()])
    }

    /// The keys that query `query` of row `row` of the batch sees.
    fn visible(&self, row: usize, query: usize) -> Range<usize> {
        // One past its own place, which may be before the first key.
        let own = (self.n + query + 1).saturating_sub(self.l);
        let start = self.starts.get(row).map_or(0, |&start| start.max(0) as usize);
        let start = match self.window {
            Some(window) => start.max(own.saturating_sub(window)),
            None => start,
        };
        let end = if self.causal || self.window.is_some() { own } else { self.n };
        start..end.max(start)
    }
}

impl<'a> Heads<'a> {
    /// That the buffer has all elements of `sizes`.
    pub(crate) fn check(&self, name: &str, sizes: [usize; 4], dtype: Dtype) -> Result<(), Error> {
        let [b, n, positions, d] = sizes;
        // One past the last element that a position's values may reach.
        let end = || {
            let counts = [b, n, positions].into_iter().zip(self.strides);
            counts.into_iter().try_fold(d, |end, (count, stride)| {
                (count - 1).checked_mul(stride).and_then(|last| end.checked_add(last))
            })
        };
        let empty = sizes.contains(&0);
        let fits = |end: usize| end.checked_mul(dtype.size()).is_some_and(|e| e <= self.data.len());
        if empty || end().is_some_and(fits) {
            return Ok(());
        }
        Err(Error(format!(
            "{name} has {} bytes, too few for {sizes:?} by {:?}",
            self.data.len(),
            self.strides
        )))
    }

    /// The bytes from position `position` of a head on.
    pub(crate) fn from(&self, dtype: Dtype, row: usize, head: usize, position: usize) -> &'a [u8] {
        let [b, h, p] = self.strides;
        &self.data[(row * b + head * h + position * p) * dtype.size()..]
    }
}
