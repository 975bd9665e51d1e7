//! A task of attention, and the tiles that it is cut into.

use std::ops::Range;

use crate::problem::buffer;
use crate::{Dtype, Error};

/// Rows of q that are computed together, at most.
pub(super) const ROWS: usize = 12;
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
    /// Factor of the scores.
    pub scale: f32,
    /// Scores are then squashed to ± this by tanh.
    pub softcap: Option<f32>,
    /// One more score for each head of q, which takes part in the softmax and adds nothing; or
    /// none.
    pub sinks: &'a [f32],
    /// The first key of each row of the batch that exists; empty: 0 for all.
    pub starts: &'a [i32],
    /// A query sees only the keys up to its own position.
    pub causal: bool,
    /// A query sees only this many keys up to its own position, itself included. Where it sees keys
    /// behind its own position too, it sees as many from there on.
    pub window: Option<usize>,
    /// `[b, l, n_heads, dv]`.
    pub out: &'a mut [u8],
}

/// Rows of q that share keys: for each query, those heads that belong to one head of k.
pub(crate) struct Tile {
    /// Of the batch.
    pub(crate) row: usize,
    pub(crate) kv_head: usize,
    /// Heads of q for each of k.
    pub(super) group: usize,
    /// Query and head of the first row: `query · group + head`.
    pub(super) first: usize,
    pub(crate) count: usize,
}

/// A part of the sum over values.
pub(crate) struct Mix<'a> {
    pub(crate) keys: Range<usize>,
    /// For each row, one for each of `keys`.
    pub(crate) weights: &'a [&'a [f32]],
    pub(crate) columns: Range<usize>,
}

impl Tile {
    pub(super) fn query_and_head(&self, i: usize) -> (usize, usize) {
        let at = self.first + i;
        (at / self.group, self.kv_head * self.group + at % self.group)
    }

    /// The bytes from row `i` of q on.
    pub(crate) fn query<'a>(&self, task: &Attention<'a>, i: usize) -> &'a [u8] {
        let (query, head) = self.query_and_head(i);
        task.q.from(task.dtype, self.row, head, query)
    }

    pub(super) fn visible(&self, task: &Attention<'_>, i: usize) -> Range<usize> {
        task.visible(self.row, self.query_and_head(i).0)
    }

    /// From the first key that some row sees to the last.
    pub(super) fn keys(&self, task: &Attention<'_>) -> Range<usize> {
        let seen =
            || (0..self.count).map(|i| self.visible(task, i)).filter(|seen| !seen.is_empty());
        let first = seen().map(|seen| seen.start).min();
        first.map_or(0..0, |first| first..seen().map(|seen| seen.end).max().unwrap_or(first))
    }
}

impl Attention<'_> {
    /// Checks every buffer against the sizes: what all kernels rely on.
    pub(super) fn check(&self) -> Result<(), Error> {
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
        let end = match self.window {
            _ if self.causal => own,
            Some(window) => {
                let last = self.n.saturating_add(query).saturating_add(window);
                self.n.min(last.saturating_sub(self.l))
            }
            None => self.n,
        };
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
