//! Buffers of keys and values, `[b, n_kv_heads, positions, …]`.

use mlx_ffi::{Array, Result, ops};

/// Positions by which a buffer grows.
pub(super) const STEP: i32 = 256;

/// Ids of a block of the prefix cache.
pub(super) const BLOCK: usize = 64;

/// A layer's arrays for the positions of a block: the keys', then the values'.
pub(super) type Parts = Vec<Array>;

/// The most positions of buffers beyond those that rows will have.
pub(crate) const MOST_SPARE: usize = 2 * BLOCK;

/// Room that buffers get beyond the rows for which they are made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct More {
    /// Slots for rows that join later.
    pub slots: usize,
    /// Positions that rows will have, at least, where they keep all.
    pub positions: i32,
}

impl More {
    /// Positions of buffers of rows that end after `longest`. While other rows join, these go on.
    pub fn capacity(&self, longest: i32) -> i32 {
        let block = BLOCK as i32;
        let while_others_join = if self.slots > 0 { block } else { 0 };
        (longest + self.positions + block - 1) / block * block + while_others_join
    }
}

/// A container of rows with a choice of them: `(row, positions left out at its end)`.
pub(super) type RowsOf<'a, T> = (&'a T, &'a [(usize, i32)]);

/// The first `end` positions, or all where there are no more.
pub(super) fn front(buffer: &Array, end: i32) -> Result<Array> {
    if end < positions(buffer) { ops::slice_axis(buffer, 2, 0, end) } else { buffer.share() }
}

/// Positions `first..end` of a buffer.
pub(super) fn between(buffer: &Array, first: i32, end: i32) -> Result<Array> {
    match first {
        0 => front(buffer, end),
        _ => ops::slice_axis(buffer, 2, first, end),
    }
}

/// Positions that it has room for.
pub(super) fn positions(buffer: &Array) -> i32 {
    buffer.shape().get(2).copied().unwrap_or(0)
}

/// The next multiple of the step by which buffers grow.
pub(super) fn whole_steps(positions: i32) -> i32 {
    (positions + STEP - 1) / STEP * STEP
}
