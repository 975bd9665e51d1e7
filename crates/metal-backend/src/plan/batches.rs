//! Which batch rows join, and which rows leave theirs to make room.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Padding that a batch may have at least, in bytes, however much that is of it.
pub(crate) const FREE_PADDING: u64 = 64 << 20;

/// A row that decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoding {
    /// When it began, since any one moment.
    pub started: Duration,
    /// Bytes that it takes soon.
    pub soon: u64,
}

/// Rows that decode together. Each slot takes what the longest row does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Rows of the buffers: those that are there, and slots that rows left.
    pub slots: usize,
    pub rows: Vec<Decoding>,
    /// Bytes that a pass with drafts takes beside the rows.
    pub drafts: u64,
}

impl Batch {
    /// Bytes that are set aside for it.
    pub fn set_aside(&self) -> u64 {
        let Some(most) = self.rows.iter().map(|row| row.soon).max() else { return 0 };
        self.slots as u64 * most + self.drafts
    }

    /// Returns true when rows left slots that can be given up.
    pub fn has_vacant_slots(&self) -> bool {
        !self.rows.is_empty() && self.rows.len() < self.slots
    }
}

/// How rows make room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Preemption {
    /// Some of what is kept of earlier requests is forgotten, and then it is asked again.
    pub forgets_prefixes: bool,
    /// The slots that rows left are given up first.
    pub gives_up_slots: bool,
    /// The rows that are preempted, one after the other: the batch, and the index in it at that
    /// time.
    pub rows: Vec<(usize, usize)>,
}

/// Bytes to be set aside for prompts that hold nothing yet and take so many each: a slot that a row
/// left is set aside already, and one of them joins it.
pub(crate) fn beside_slots(batches: &[Batch], prompts: &[u64]) -> u64 {
    let of_batch = |batch: &Batch| {
        let most = batch.rows.iter().map(|row| row.soon).max().unwrap_or(0);
        std::iter::repeat_n(most, batch.slots.saturating_sub(batch.rows.len()))
    };
    let mut vacant: Vec<u64> = batches.iter().flat_map(of_batch).collect();
    let mut prompts = prompts.to_vec();
    vacant.sort_unstable();
    prompts.sort_unstable();
    let in_slots = vacant.iter().rev().zip(prompts.iter().rev()).map(|(slot, own)| slot.min(own));
    prompts.iter().sum::<u64>() - in_slots.sum::<u64>()
}

/// [`preempt`], but what is kept of earlier requests gives way first, where there is such.
/// `others`: bytes that others have, and those set aside for prompts that hold nothing yet. No row
/// makes room for these: they begin later.
pub(crate) fn make_room(
    batches: Vec<Batch>,
    [others, prompts]: [u64; 2],
    limit: u64,
    keeps: bool,
) -> Preemption {
    let rows: u64 = batches.iter().map(Batch::set_aside).sum();
    if keeps && rows + prompts > 0 && others.saturating_add(rows + prompts) > limit {
        return Preemption { forgets_prefixes: true, ..Preemption::default() };
    }
    preempt(batches, others, limit)
}

/// Sets rows back, the youngest first, until all fit into `limit` with `others` bytes beside them.
/// The last row stays. It begins again once there is room, and goes on where it was.
pub(super) fn preempt(mut batches: Vec<Batch>, others: u64, limit: u64) -> Preemption {
    let mut out = Preemption::default();
    let all = |batches: &[Batch]| batches.iter().map(|batch| batch.rows.len()).sum::<usize>();
    let bytes = |batches: &[Batch]| batches.iter().map(Batch::set_aside).sum::<u64>();
    while all(&batches) > 1 && others.saturating_add(bytes(&batches)) > limit {
        if batches.iter().any(Batch::has_vacant_slots) {
            out.gives_up_slots = true;
            batches.iter_mut().for_each(|batch| batch.slots = batch.rows.len());
            continue;
        }
        let rows = batches.iter().enumerate().flat_map(|(index, batch)| {
            batch.rows.iter().enumerate().map(move |(at, row)| (row.started, index, at))
        });
        let Some((_, index, at)) = rows.max() else { break };
        batches[index].rows.remove(at);
        batches[index].slots -= 1;
        out.rows.push((index, at));
    }
    out
}

/// The batch that rows of `joining` bytes each can join without much padding: up to `free` bytes of
/// it, or as many as its rows have. Each batch is the bytes of its rows; `None` cannot be joined.
/// Where `beside` batches are to be under way beside each other, others begin until there are so
/// many, and rows join the one that has the fewest.
pub(crate) fn batch_to_join(
    joining: &[u64],
    batches: &[Option<Vec<u64>>],
    beside: usize,
    free: u64,
) -> Option<usize> {
    if batches.len() < beside {
        return None;
    }
    let fits = |at: &usize| {
        let Some(held) = &batches[*at] else { return false };
        let all = || held.iter().chain(joining);
        let real: u64 = all().sum();
        let padded = all().count() as u64 * all().max().copied().unwrap_or(0);
        let padding = padded - real;
        padding <= real || padding <= free
    };
    let rows = |at: &usize| batches[*at].as_ref().map_or(0, Vec::len);
    let mut fitting = (0..batches.len()).filter(fits);
    if beside < 2 { fitting.next() } else { fitting.min_by_key(rows) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn batch(slots: usize, rows: &[(u64, u64)]) -> Batch {
        let row = |(started, soon): &(u64, u64)| Decoding {
            started: Duration::from_secs(*started),
            soon: *soon,
        };
        Batch { slots, rows: rows.iter().map(row).collect(), drafts: 0 }
    }

    #[test]
    fn slots_are_given_up_first_then_the_youngest_row_is_preempted() {
        let two = || vec![batch(3, &[(1, 10), (4, 20)]), batch(2, &[(3, 5), (2, 30)])];
        // 3 * 20 and 2 * 30.
        let cases = [
            (120, false, vec![]),
            (119, true, vec![]),
            (100, true, vec![]),
            (99, true, vec![(0, 1)]),
            (69, true, vec![(0, 1), (1, 0)]),
            // The last row stays, however much it takes.
            (5, true, vec![(0, 1), (1, 0), (1, 0)]),
        ];
        for (limit, gives_up_slots, rows) in cases {
            let expected = Preemption { gives_up_slots, rows, ..Preemption::default() };
            assert_eq!(preempt(two(), 0, limit), expected, "{limit} bytes");
            assert_eq!(preempt(two(), 7, limit + 7), expected, "{limit} bytes beside others");
        }
        assert_eq!(preempt(vec![batch(1, &[(1, 10)])], 0, 5), Preemption::default());
        // Where anything is kept of earlier requests, that goes first.
        let fits: u64 = two().iter().map(Batch::set_aside).sum();
        for prompts in [0, 3] {
            let plan = |limit, keeps| make_room(two(), [7, prompts], limit, keeps);
            let forgets = |limit, keeps| plan(limit, keeps).forgets_prefixes;
            let fits = 7 + fits + prompts;
            assert!(forgets(fits - 1, true) && !forgets(fits, true) && !forgets(fits - 1, false));
            // Prompts that hold nothing are in the way of no row.
            assert_eq!(plan(fits - prompts, false), Preemption::default());
            assert_ne!(plan(fits - prompts - 1, false), Preemption::default());
        }
        // What drafts take counts until the last row of their batch is preempted.
        let drafting =
            || vec![batch(1, &[(1, 10)]), Batch { drafts: 7, ..batch(2, &[(2, 5), (3, 5)]) }];
        for (limit, rows) in [(27, vec![]), (26, vec![(1, 1)]), (21, vec![(1, 1), (1, 0)])] {
            let expected = Preemption { rows, ..Preemption::default() };
            assert_eq!(preempt(drafting(), 0, limit), expected, "{limit} bytes with drafts");
        }
    }

    #[test]
    fn prompts_that_hold_nothing_take_vacant_slots() {
        let batches = [batch(4, &[(1, 10), (4, 20)]), batch(2, &[(3, 5)])];
        // Two slots of 20, and one of 5.
        let cases: [(&[u64], u64); 5] =
            [(&[], 0), (&[7], 0), (&[30, 7, 6], 11), (&[7, 6, 6, 3], 4), (&[30, 30, 30], 45)];
        for (prompts, expected) in cases {
            assert_eq!(beside_slots(&batches, prompts), expected, "{prompts:?}");
        }
        assert_eq!(beside_slots(&[], &[3, 4]), 7);
    }

    #[test]
    fn rows_join_where_padding_is_little() {
        let mib = |sizes: &[u64]| Some(sizes.iter().map(|size| size << 20).collect::<Vec<_>>());
        let join = |row: u64, batches: &[Option<Vec<u64>>]| {
            batch_to_join(&[row << 20], batches, 1, FREE_PADDING)
        };
        // However much it is of the whole: up to 64 MiB.
        assert_eq!(join(1, &[mib(&[65])]), Some(0));
        assert_eq!(join(1, &[mib(&[66]), mib(&[10])]), Some(0));
        assert_eq!(join(1, &[mib(&[66, 66]), None, mib(&[10])]), Some(0));
        // As much as what counts, and no more.
        assert_eq!(join(300, &[mib(&[1, 1]), mib(&[100, 100])]), Some(1));
        assert_eq!(join(300, &[mib(&[100]), mib(&[1, 1])]), Some(0));
        assert_eq!(join(300, &[mib(&[1, 1]), None]), None);
        assert_eq!(batch_to_join(&[1], &[], 1, 0), None);
        // More where there is room for it.
        let batches = [mib(&[1, 1]), mib(&[100, 100])];
        let join = |free: u64| batch_to_join(&[300 << 20], &batches, 1, free << 20);
        assert_eq!([join(597), join(598)], [Some(1), Some(0)]);
        // Beside each other: another one until there are so many, then that of the fewest rows.
        let batches = [mib(&[10, 10]), mib(&[10]), mib(&[10, 10])];
        assert_eq!(batch_to_join(&[1], &batches, 4, FREE_PADDING), None);
        assert_eq!(batch_to_join(&[1], &batches, 3, FREE_PADDING), Some(1));
        assert_eq!(batch_to_join(&[1], &batches, 1, FREE_PADDING), Some(0));
    }

    proptest! {
        #[test]
        fn what_stays_fits_and_is_older_than_what_is_preempted(
            batches in prop::collection::vec(
                (prop::collection::vec((0_u64..50, 1_u64..100), 1..6), 0_usize..3, 0_u64..50), 1..4),
            others in 0_u64..200,
            limit in 0_u64..900,
        ) {
            let of = |(rows, vacant, drafts): &(Vec<_>, usize, u64)| {
                Batch { drafts: *drafts, ..batch(rows.len() + vacant, rows) }
            };
            let batches: Vec<Batch> = batches.iter().map(of).collect();
            let plan = preempt(batches.clone(), others, limit);
            let mut left = batches.clone();
            if plan.gives_up_slots {
                left.iter_mut().for_each(|batch| batch.slots = batch.rows.len());
            }
            let mut before = Duration::MAX;
            for (index, at) in &plan.rows {
                // Each row was needed: before it left, all of them did not fit.
                prop_assert!(others + left.iter().map(Batch::set_aside).sum::<u64>() > limit);
                let row = left[*index].rows.remove(*at);
                left[*index].slots -= 1;
                prop_assert!(row.started <= before);
                before = row.started;
                prop_assert!(left.iter().flat_map(|batch| &batch.rows).all(|row| row.started <= before));
            }
            let rows: usize = left.iter().map(|batch| batch.rows.len()).sum();
            prop_assert!(rows > 0);
            let bytes = left.iter().map(Batch::set_aside).sum::<u64>();
            prop_assert!(rows == 1 || others + bytes <= limit);
        }
    }
}
