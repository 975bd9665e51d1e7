//! Drafts by prompt lookup: what followed a row's last ids where they stood before.

/// How many last ids are looked up: the longest are tried first.
const LENGTHS: [usize; 2] = [3, 2];

/// Up to `most` ids that followed the last ones of `ids` where these stood before, the last time;
/// none where they did not.
pub(super) fn lookup(ids: &[u32], most: usize) -> &[u32] {
    if most == 0 {
        return &[];
    }
    let followed = |length: usize| {
        let earlier = ids.len().checked_sub(length)?;
        let (last, before) = (&ids[earlier..], &ids[..ids.len() - 1]);
        let at = before.windows(length).rposition(|window| window == last)?;
        Some(&ids[at + length..])
    };
    let found = LENGTHS.into_iter().find_map(followed).unwrap_or(&[]);
    &found[..found.len().min(most)]
}

#[cfg(test)]
mod tests {
    use super::lookup;

    #[test]
    fn what_followed_the_longest_match_is_the_draft() {
        // `2 3` was followed by 9 last, `1 2 3` by 4.
        let ids = [1, 2, 3, 4, 5, 2, 3, 9, 1, 2, 3];
        assert_eq!(lookup(&ids, 2), [4, 5]);
        assert_eq!(lookup(&ids[..7], 3), [4, 5, 2]);
        assert!(lookup(&ids, 0).is_empty());
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
}
