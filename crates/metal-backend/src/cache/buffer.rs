//! Buffers of keys and values, `[b, n_kv_heads, positions, …]`.

use mlx_ffi::{Array, Result, ops};

/// Positions by which a buffer grows.
pub(super) const STEP: i32 = 256;

/// Ids of a block of the prefix cache.
pub(super) const BLOCK: usize = 64;

/// A layer's arrays for the positions of a block: the keys', then the values'.
pub(super) type Parts = Vec<Array>;

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
