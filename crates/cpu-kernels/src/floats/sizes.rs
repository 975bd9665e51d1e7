//! The values that are multiplied before their sum is added to that of a row.

/// Values of a chunk.
pub(super) const CHUNK: usize = 64;

/// Vectors of a chunk.
pub(super) const STEPS: usize = CHUNK / 8;

/// Sums that a block of chunks is made of, so that one need not wait for the other. Each has every
/// fourth vector; in memory these follow each other.
pub(super) const CHAINS: usize = 4;

/// Vectors of a chunk that belong to one chain.
pub(super) const OF_CHAIN: usize = STEPS / CHAINS;

/// Rows of weights that are multiplied at a time.
pub(super) const W_TILE: usize = 4;
