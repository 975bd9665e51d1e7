//! Sizes that panels and rows of x share.

/// Columns of the result that are computed at a time: two vectors of sums for each row of x.
pub(in crate::avx512) const COLUMNS: usize = 32;

/// Steps of k, a pair each, that are unrolled.
pub(in crate::avx512) const UNROLLED: usize = 8;

/// Unrolled steps of dense weights between which more memory is asked for.
pub(super) const DENSE_PART: usize = 8;
