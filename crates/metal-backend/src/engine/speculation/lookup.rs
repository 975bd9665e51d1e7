//! Drafts by prompt lookup: what followed a row's last ids where they stood before.

use std::collections::HashMap;

use super::proposer::Proposer;

/// Of the last ids, so many have to stand before. More that do are preferred, up to the most.
const FEWEST: usize = 2;
const MOST: usize = 8;
/// Places, the last ones first, that are compared.
const PLACES: usize = 64;

/// Finds where the last ids of a sequence stood before.
#[derive(Debug, Default)]
pub(in super::super) struct Lookup {
    /// Behind which index each pair of ids stands, the last time.
    last: HashMap<[u32; FEWEST], u32>,
    /// Behind which index the pair that ends before an index stood the time before; 0: nowhere.
    before: Vec<u32>,
}

impl Lookup {
    /// Takes note of the pairs of `ids` but the last one, which is what is looked up.
    fn extend(&mut self, ids: &[u32]) {
        let end = ids.len().saturating_sub(1);
        for at in self.before.len()..end {
            let before = match at.checked_sub(FEWEST - 1) {
                Some(first) => {
                    let pair = std::array::from_fn(|offset| ids[first + offset]);
                    self.last.insert(pair, at as u32 + 1).unwrap_or(0)
                }
                None => 0,
            };
            self.before.push(before);
        }
    }

    /// The ends of the places where the last ids stood before, the last one first.
    fn places(&self, ids: &[u32]) -> impl Iterator<Item = usize> {
        let pair = ids.last_chunk::<FEWEST>();
        let last = pair.and_then(|pair| self.last.get(pair)).copied();
        let before = |end: &u32| self.before.get(*end as usize - 1).copied().filter(|end| *end > 0);
        std::iter::successors(last, before).map(|end| end as usize)
    }
}

impl Proposer for Lookup {
    fn propose(&mut self, ids: &[u32], most: usize) -> Vec<u32> {
        self.extend(ids);
        let alike = |end: usize| {
            let pairs = ids[..end].iter().rev().zip(ids.iter().rev());
            pairs.take(MOST).take_while(|(a, b)| a == b).count()
        };
        let mut best: Option<(usize, usize)> = None;
        for end in self.places(ids).take(PLACES) {
            let length = alike(end);
            if best.is_none_or(|(longest, _)| length > longest) {
                best = Some((length, end));
            }
            if length == MOST {
                break;
            }
        }
        best.map_or(Vec::new(), |(_, end)| ids[end..].iter().copied().take(most).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{Lookup, MOST, PLACES, Proposer};

    fn lookup(ids: &[u32], most: usize) -> Vec<u32> {
        let at_once = Lookup::default().propose(ids, most);
        let mut lookup = Lookup::default();
        (0..ids.len()).for_each(|end| drop(lookup.propose(&ids[..end], most)));
        assert_eq!(lookup.propose(ids, most), at_once, "one id after the other");
        at_once
    }

    #[test]
    fn what_followed_the_longest_match_is_the_draft() {
        // `2 3` was followed by 9 last, `1 2 3` by 4.
        let ids = [1, 2, 3, 4, 5, 2, 3, 9, 1, 2, 3];
        assert_eq!(lookup(&ids, 2), [4, 5]);
        assert_eq!(lookup(&ids[..7], 3), [4, 5, 2]);
        assert!(lookup(&ids, 0).is_empty());
        // No more than so many ids are compared.
        let long: Vec<u32> = (0..MOST as u32).collect();
        let ids = [&[77][..], &long, &[1000], &long, &[2000, 77], &long].concat();
        assert_eq!(lookup(&ids, 1), [2000]);
    }

    #[test]
    fn the_last_match_counts_and_may_overlap_what_it_is_looked_up_for() {
        assert_eq!(lookup(&[1, 2, 7, 1, 2, 8, 1, 2], 1), [8]);
        assert_eq!(lookup(&[5, 5, 5, 5], 9), [5]);
        assert_eq!(lookup(&[5, 6, 5, 6, 5], 9), [6, 5]);
    }

    #[test]
    fn ids_that_stood_nowhere_before_have_no_draft() {
        for ids in [&[][..], &[1], &[1, 1], &[1, 2], &[1, 2, 3, 4]] {
            assert!(lookup(ids, 4).is_empty(), "{ids:?}");
        }
    }

    #[test]
    fn sequences_that_repeat_one_pair_are_looked_up_in_bounded_time() {
        let ids: Vec<u32> = (0..20_000).flat_map(|at| [1, 2, 3 + at]).chain([1, 2]).collect();
        let mut lookup = Lookup::default();
        assert_eq!(lookup.propose(&ids, 1), [3 + 19_999]);
        assert!(lookup.places(&ids).take(PLACES + 1).count() > PLACES);
    }
}
