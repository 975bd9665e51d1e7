//! Which prompts are computed next, and together: decided from lengths alone.

/// Every so many turns, the prompt that came first is served rather than the shortest one.
const OLDEST_EVERY: usize = 4;
/// One position that fills rows up is worth it for so many that count.
const MOST_PADDING: usize = 4;

/// Prompts that wait for their next chunk, which is computed in one pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub rows: usize,
    /// Ids of the longest prompt that are still to be computed.
    pub left: usize,
    /// Ids of the longest next chunk.
    pub columns: usize,
    /// Ids of all rows' next chunks.
    pub counted: usize,
    /// Ids of the longest prompt.
    pub tokens: usize,
}

impl Waiting {
    /// Both in one pass.
    fn with(self, other: &Waiting) -> Waiting {
        Waiting {
            rows: self.rows + other.rows,
            left: self.left.max(other.left),
            columns: self.columns.max(other.columns),
            counted: self.counted + other.counted,
            tokens: self.tokens.max(other.tokens),
        }
    }

    /// Positions of the pass, those included that fill rows up.
    pub fn positions(&self) -> usize {
        self.rows * self.columns
    }
}

/// The index of the prompts that are computed in a turn: those with the least left, so that they need not
/// wait for long ones; at times the first ones, so that a long one need not wait for ever.
pub(super) fn next(turn: usize, waiting: &[Waiting]) -> Option<usize> {
    if turn.is_multiple_of(OLDEST_EVERY) {
        return (!waiting.is_empty()).then_some(0);
    }
    (0..waiting.len()).min_by_key(|at| waiting[*at].left)
}

/// The indices, in ascending order, of those of `others` that share the pass of `lead`: of about the same
/// length, as many as `fits` admits. `None` of `others` cannot share.
pub(super) fn companions(
    lead: Waiting,
    others: &[Option<Waiting>],
    fits: impl Fn(&Waiting) -> bool,
) -> Vec<usize> {
    let mut can: Vec<(usize, Waiting)> =
        others.iter().enumerate().filter_map(|(at, other)| Some((at, (*other)?))).collect();
    can.sort_by_key(|(_, other)| other.columns.abs_diff(lead.columns));
    let (mut pass, mut taken) = (lead, Vec::new());
    for (at, other) in can {
        let all = pass.with(&other);
        if all.positions() <= all.counted + all.counted / MOST_PADDING && fits(&all) {
            taken.push(at);
            pass = all;
        }
    }
    taken.sort_unstable();
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(ids: usize, chunk: usize) -> Waiting {
        let columns = ids.min(chunk);
        Waiting { rows: 1, left: ids, columns, counted: columns, tokens: ids }
    }

    #[test]
    fn the_shortest_comes_first_and_at_times_the_oldest() {
        let waiting = [900, 30, 40].map(|ids| one(ids, 512));
        let turns: Vec<_> = (1..9).map(|turn| next(turn, &waiting)).collect();
        let (short, old) = (Some(1), Some(0));
        assert_eq!(turns, [short, short, short, old, short, short, short, old]);
        assert_eq!((next(1, &[]), next(4, &[])), (None, None));
    }

    #[test]
    fn what_shares_a_pass_is_of_about_one_length() {
        let most = |positions| move |pass: &Waiting| pass.positions() <= positions;
        let others = [100, 20, 110, 95, 300].map(|ids| Some(one(ids, 512)));
        assert_eq!(companions(one(100, 512), &others, most(10_000)), [0, 2, 3]);
        // The nearest ones go in first.
        assert_eq!(companions(one(100, 512), &others, most(300)), [0, 3]);
        assert_eq!(companions(one(100, 512), &others, most(150)), [0; 0]);
        let cannot = [None, Some(one(100, 512)), None];
        assert_eq!(companions(one(100, 512), &cannot, most(10_000)), [1]);
        // Chunks count, not prompts.
        let long = [600, 5000].map(|ids| Some(one(ids, 512)));
        assert_eq!(companions(one(700, 512), &long, most(10_000)), [0, 1]);
    }

    #[test]
    fn at_most_a_fifth_of_a_pass_fills_rows_up() {
        for lead in 1..60 {
            let others: Vec<_> = (1..60).map(|ids| Some(one(ids, 64))).collect();
            let taken = companions(one(lead, 64), &others, |_| true);
            let all = taken
                .iter()
                .fold(one(lead, 64), |pass, at| pass.with(&others[*at].expect("it can share")));
            assert!(all.positions() * 4 <= all.counted * 5, "{lead}: {all:?}");
            assert!(taken.is_sorted() && !taken.is_empty(), "{lead}");
        }
    }
}
