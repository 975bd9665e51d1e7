//! The values that are multiplied before their sum is added to that of a row.

/// Values of a chunk.
pub(super) const CHUNK: usize = 64;

/// Vectors of a chunk.
pub(super) const STEPS: usize = CHUNK / 8;
