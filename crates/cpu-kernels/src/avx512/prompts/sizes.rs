//! Sizes that panels and rows of x share.

/// Columns of the result that are computed at a time: two vectors of sums for each row of x.
pub(super) const COLUMNS: usize = 32;

/// Steps of k, a pair each, that are unrolled.
pub(super) const UNROLLED: usize = 8;
