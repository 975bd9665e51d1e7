//! A rank's part of the matrices of a layer that several ranks compute together.

use std::ops::Range;

/// A rank's part of a matrix, `[…, rows, columns]`, and of the bias beside it.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    side: Side,
    /// Rows or columns of the whole.
    of: i32,
    ranges: Vec<Range<i32>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Rows,
    Columns,
    /// The first dimension, whatever follows.
    Channels,
}

impl Cut {
    /// The rows `ranges` of `of`, in turn: the rank computes some of the results.
    pub fn rows(of: i32, ranges: Vec<Range<i32>>) -> Cut {
        Cut { side: Side::Rows, of, ranges }
    }

    /// The rows `range` of `of`.
    pub fn row_range(of: i32, range: Range<i32>) -> Cut {
        Cut::rows(of, std::iter::once(range).collect())
    }

    /// The columns `range` of `of`: the rank computes a term of every result.
    pub fn columns(of: i32, range: Range<i32>) -> Cut {
        Cut { side: Side::Columns, of, ranges: vec![range] }
    }

    /// The channels `ranges` of `of`, in turn, of convolutions of each by itself: `[channels, …]`.
    pub fn channels(of: i32, ranges: Vec<Range<i32>>) -> Cut {
        Cut { side: Side::Channels, of, ranges }
    }

    /// Returns true when all ranks' results must be summed.
    pub fn leaves_terms(&self) -> bool {
        self.side == Side::Columns
    }

    /// Rows or columns of the whole that the rank has, in turn.
    pub fn ranges(&self) -> &[Range<i32>] {
        &self.ranges
    }

    /// How many the rank has.
    pub fn count(&self) -> i32 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Rows or columns of the whole.
    pub fn of(&self) -> i32 {
        self.of
    }

    /// The part to read of the tensor `name` so that it has `shape`, where that is not all.
    /// Packed tensors have fewer columns than the matrix.
    pub fn part(&self, name: &str, shape: &[i32]) -> Option<Part> {
        let is_vector = shape.len() < 2 || name.ends_with("bias");
        let axis = match (self.side, is_vector) {
            (Side::Columns, true) => return None,
            (Side::Channels, _) => 0,
            (Side::Rows, false) => shape.len() - 2,
            (Side::Rows, true) | (Side::Columns, false) => shape.len().checked_sub(1)?,
        };
        let own = i64::from(self.count());
        let packed = |at: i32| {
            let at = i64::from(at) * i64::from(shape[axis]);
            (own > 0 && at % own == 0).then(|| i32::try_from(at / own).ok()).flatten()
        };
        let mut whole = shape.to_vec();
        whole[axis] = packed(self.of)?;
        let ranges = self.ranges.iter().map(|range| Some(packed(range.start)?..packed(range.end)?));
        Some(Part { whole, axis, ranges: ranges.collect::<Option<_>>()? })
    }
}

/// The part of a tensor that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The shape of all of it.
    pub whole: Vec<i32>,
    /// The dimension of which only `ranges` are read, in turn.
    pub axis: usize,
    pub ranges: Vec<Range<i32>>,
}

impl Part {
    /// The places and lengths of its bytes, in turn.
    /// The tensor begins at `offset`, its elements have `size` bytes.
    pub fn segments(&self, offset: u64, size: usize) -> Vec<(u64, usize)> {
        let count = |dims: &[i32]| dims.iter().map(|&dim| dim as u64).product::<u64>();
        let inner = count(&self.whole[self.axis + 1..]) * size as u64;
        let rows = self.whole[self.axis] as u64;
        let outer = count(&self.whole[..self.axis]);
        let segment = |first: u64, range: &Range<i32>| {
            let start = offset + (first * rows + range.start as u64) * inner;
            (start, ((range.end - range.start) as u64 * inner) as usize)
        };
        let of = |first| self.ranges.iter().map(move |range| segment(first, range));
        (0..outer).flat_map(of).collect()
    }

    /// How many times as many elements the whole has.
    pub fn times(&self, elements: u64) -> u64 {
        let own: u64 = self.ranges.iter().map(|range| (range.end - range.start) as u64).sum();
        elements * self.whole[self.axis] as u64 / own.max(1)
    }
}

/// The ids of a vocabulary that the rank has, and how many each rank has. The last ones have fewer.
/// `None`: there are too few for all of `ranks`.
pub(crate) fn share_of_vocabulary(
    vocab_size: i32,
    rank: usize,
    ranks: usize,
) -> Option<(Range<i32>, i32)> {
    let (rank, ranks) = (rank as i32, i32::try_from(ranks).ok()?);
    let least = vocab_size.div_euclid(ranks) + i32::from(vocab_size % ranks > 0);
    // Kernels like whole blocks of rows.
    let blocks = (least.checked_add(63)? / 64).checked_mul(64)?;
    let most = [blocks, least].into_iter().find(|most| (ranks - 1) * most < vocab_size)?;
    Some((rank * most..vocab_size.min((rank + 1) * most), most))
}

/// The units of `count` that the rank computes, where there are enough for all of `ranks`.
pub(crate) fn share(count: i32, rank: usize, ranks: usize) -> Option<Range<i32>> {
    let bound = |rank: usize| (rank as i64 * i64::from(count) / ranks as i64) as i32;
    (count as usize >= ranks).then(|| bound(rank)..bound(rank + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read_where_it_lies() {
        let rows = Cut::rows(8, vec![2..4, 6..7]);
        let part = rows.part("weight", &[3, 5]).expect("not all of it");
        assert_eq!(part.whole, [8, 5]);
        assert_eq!(part.segments(100, 2), [(120, 20), (160, 10)]);
        assert_eq!(part.times(15), 40);
        let experts = rows.part("gate_up_proj", &[2, 3, 5]).expect("not all of it");
        assert_eq!(experts.whole, [2, 8, 5]);
        assert_eq!(experts.segments(0, 1), [(10, 10), (30, 5), (50, 10), (70, 5)]);
        assert_eq!(rows.part("bias", &[3]).expect("not all of it").whole, [8]);
        assert_eq!(rows.part("bias", &[2, 3]).expect("not all of it").whole, [2, 8]);
        let channels = Cut::channels(8, vec![2..4, 6..7]);
        let taps = channels.part("conv1d.weight", &[3, 1, 4]).expect("not all of it");
        assert_eq!(taps.whole, [8, 1, 4]);
        assert_eq!(taps.segments(0, 2), [(16, 16), (48, 8)]);
        assert_eq!(channels.part("conv1d.bias", &[3]).expect("not all of it").whole, [8]);
    }

    #[test]
    fn packed_columns_are_cut_where_the_matrix_is() {
        let columns = Cut::columns(256, 64..128);
        // 4 bits: 8 values a word; a scale for 32.
        let weight = columns.part("weight", &[2, 8]).expect("not all of it");
        assert_eq!(weight.whole, [2, 32]);
        assert_eq!(weight.segments(0, 4), [(32, 32), (160, 32)]);
        let scales = columns.part("scales", &[2, 2]).expect("not all of it");
        assert_eq!(scales.segments(0, 1), [(2, 2), (10, 2)]);
        assert_eq!(columns.part("bias", &[2]), None);
    }

    #[test]
    fn every_id_is_one_ranks() {
        for (vocab_size, ranks) in [(151_936, 2), (1024, 3), (130, 2), (70, 4), (5, 3)] {
            let shares = (0..ranks).map(|rank| share_of_vocabulary(vocab_size, rank, ranks));
            let shares: Vec<_> = shares.map(|share| share.expect("enough for all")).collect();
            let ids = shares.iter().flat_map(|(own, _)| own.clone());
            assert!(ids.eq(0..vocab_size), "{shares:?}");
            assert!(shares.iter().all(|(own, most)| own.len() as i32 <= *most && !own.is_empty()));
        }
        assert_eq!(share_of_vocabulary(2, 0, 3), None);
    }

    #[test]
    fn every_unit_is_one_ranks() {
        for (count, ranks) in [(2, 2), (7, 3), (64, 5)] {
            let shares: Vec<_> =
                (0..ranks).filter_map(|rank| share(count, rank, ranks)).flatten().collect();
            assert!(shares.into_iter().eq(0..count), "{count} of {ranks}");
        }
        assert_eq!(share(2, 0, 3), None);
    }
}
