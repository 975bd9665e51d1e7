//! Which rows are computed together.

use std::ops::Range;

/// The order in which rows are computed, and which of them together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batches {
    /// The rows' numbers, the longest first: what does not fit is told before anything is computed,
    /// and rows of one length stand side by side.
    pub order: Vec<usize>,
    /// Of `order`.
    pub ranges: Vec<Range<usize>>,
}

impl Batches {
    /// Rows of these lengths in batches of at most `tokens` in all, or of one row.
    pub fn new(lengths: &[usize], tokens: usize) -> Batches {
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        order.sort_by_key(|row| std::cmp::Reverse(lengths[*row]));
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut used = 0;
        for (at, row) in order.iter().enumerate() {
            match ranges.last_mut() {
                Some(range) if used + lengths[*row] <= tokens => range.end = at + 1,
                _ => {
                    ranges.push(at..at + 1);
                    used = 0;
                }
            }
            used += lengths[*row];
        }
        Batches { order, ranges }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_come_first_and_a_batch_has_no_more_tokens_than_it_may() {
        let batches = Batches::new(&[3, 9, 3, 1, 2], 6);
        assert_eq!(batches.order, [1, 0, 2, 4, 3]);
        assert_eq!(batches.ranges, [0..1, 1..3, 3..5]);
        assert!(Batches::new(&[], 6).ranges.is_empty());
    }
}
