//! Which prompts are computed next and together, and how many layers of them.

use serde::{Deserialize, Serialize};

use super::pace::{MIXED, Pace};

/// Every so many turns, the prompt that came first is served rather than the shortest one.
const OLDEST_EVERY: usize = 4;
/// One position that fills rows up is worth it for so many that count.
const MOST_PADDING: usize = 4;

/// Prompts that wait for their next chunk, which is computed in one pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub rows: usize,
    /// Ids of the longest prompt that are still to be computed.
    pub left: usize,
    /// Ids of the longest next chunk.
    pub columns: usize,
    /// Ids of all rows' next chunks.
    pub counted: usize,
    /// Ids of the longest prompt.
    pub tokens: usize,
    /// They have no memory yet.
    pub holds_nothing: bool,
    /// Those of one kind can share a pass; `None`: it is computed by itself.
    pub kind: Option<usize>,
}

/// The work on prompts of one scheduling step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// The index of the prompts that are computed.
    pub lead: usize,
    /// The indices of those that share their pass, in ascending order.
    pub with: Vec<usize>,
    /// Layers that are computed of the pass.
    pub layers: usize,
    /// Positions of the pass.
    pub positions: usize,
    /// A batch takes its step in the pass, which then goes through all layers.
    pub is_mixed: bool,
}

/// The bounds of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passes {
    /// The most positions of several prompts in one pass.
    pub positions: usize,
    /// Bytes that a pass may take beside what is set aside.
    pub room: u64,
    /// Layers of the model.
    pub n_layers: usize,
    /// The rows of a batch that can take its step in a pass; 0: there is none.
    pub rows: usize,
    /// Prompts that hold nothing yet may begin beside what runs.
    pub may_begin: bool,
}

/// Decides the work on prompts of one scheduling step.
/// `bytes` returns the bytes that a pass of several takes.
pub(crate) fn part(
    turn: usize,
    waiting: &[Waiting],
    pace: Pace,
    passes: Passes,
    bytes: impl Fn(&Waiting) -> u64,
) -> Option<Part> {
    let may = |one: &Waiting| passes.may_begin || !one.holds_nothing;
    let lead = next(turn, waiting, may)?;
    let (mut pass, kind) = (waiting[lead], waiting[lead].kind);
    let mixes = |all: &Waiting| pace.mixes(all.positions(), passes.n_layers);
    let is_mixed = passes.rows > 0 && kind.is_some() && mixes(&pass);
    let most = if is_mixed { MIXED.min(passes.positions) } else { passes.positions };
    // Rows of a batch are like some more positions.
    let bytes = |all: &Waiting| {
        let more = if is_mixed { passes.rows.div_ceil(all.columns.max(1)) } else { 0 };
        bytes(&Waiting { rows: all.rows + more, ..*all })
    };
    let shares = |(at, other): (usize, &Waiting)| {
        (at != lead && kind.is_some() && other.kind == kind && may(other)).then_some(*other)
    };
    let others: Vec<_> = waiting.iter().enumerate().map(shares).collect();
    let is_free = |padding| pace.is_free(padding, passes.n_layers);
    let with = companions(pass, &others, is_free, |all| {
        all.positions() <= most && bytes(all) <= passes.room && (!is_mixed || mixes(all))
    });
    for at in &with {
        pass = pass.with(&waiting[*at]);
    }
    let positions = pass.positions();
    let layers = if is_mixed { passes.n_layers } else { pace.layers(positions, passes.n_layers) };
    Some(Part { lead, with, layers, positions, is_mixed })
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
            holds_nothing: self.holds_nothing && other.holds_nothing,
            kind: self.kind,
        }
    }

    /// Positions of the pass, those included that fill rows up.
    pub fn positions(&self) -> usize {
        self.rows * self.columns
    }
}

/// The index of the prompts that are computed in a turn: those with the least left, so that they
/// need not wait for long ones; at times the first ones, so that a long one need not wait for ever.
fn next(turn: usize, waiting: &[Waiting], may: impl Fn(&Waiting) -> bool) -> Option<usize> {
    let mut all = (0..waiting.len()).filter(|at| may(&waiting[*at]));
    match turn.is_multiple_of(OLDEST_EVERY) {
        true => all.next(),
        false => all.min_by_key(|at| waiting[*at].left),
    }
}

/// The indices, in ascending order, of those of `others` that share the pass of `lead`: of about
/// the same length, or of any as long as what fills rows up `is_free`, as many as `fits` admits.
/// `None` of `others` cannot share.
fn companions(
    lead: Waiting,
    others: &[Option<Waiting>],
    is_free: impl Fn(usize) -> bool,
    fits: impl Fn(&Waiting) -> bool,
) -> Vec<usize> {
    let mut can: Vec<(usize, Waiting)> =
        others.iter().enumerate().filter_map(|(at, other)| Some((at, (*other)?))).collect();
    can.sort_by_key(|(_, other)| other.columns.abs_diff(lead.columns));
    let (mut pass, mut taken) = (lead, Vec::new());
    for (at, other) in can {
        let all = pass.with(&other);
        let padding = all.positions() - all.counted;
        if (padding <= all.counted / MOST_PADDING || is_free(padding)) && fits(&all) {
            taken.push(at);
            pass = all;
        }
    }
    taken.sort_unstable();
    taken
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn one(ids: usize, chunk: usize) -> Waiting {
        let columns = ids.min(chunk);
        let (left, counted, tokens) = (ids, columns, ids);
        Waiting { rows: 1, left, columns, counted, tokens, holds_nothing: true, kind: Some(0) }
    }

    fn never(_: usize) -> bool {
        false
    }

    #[test]
    fn the_shortest_comes_first_and_at_times_the_oldest() {
        let waiting = [900, 30, 40].map(|ids| one(ids, 512));
        let turns: Vec<_> = (1..9).map(|turn| next(turn, &waiting, |_| true)).collect();
        let (short, old) = (Some(1), Some(0));
        assert_eq!(turns, [short, short, short, old, short, short, short, old]);
        let long = [1, 4].map(|turn| next(turn, &waiting, |one| one.left > 35));
        assert_eq!(long, [Some(2), Some(0)]);
        assert_eq!([1, 4].map(|turn| next(turn, &[], |_| true)), [None, None]);
    }

    #[test]
    fn where_memory_is_short_prompts_go_on_and_none_begins() {
        let mut waiting = [900, 30, 40, 950].map(|ids| one(ids, 512));
        let passes =
            Passes { positions: 8192, room: u64::MAX, n_layers: 1, rows: 0, may_begin: false };
        let plan = |waiting: &[Waiting], may_begin| {
            let part = part(1, waiting, Pace::default(), Passes { may_begin, ..passes }, |_| 0);
            part.map(|part| (part.lead, part.with))
        };
        assert_eq!(plan(&waiting, false), None);
        assert_eq!(plan(&waiting, true).map(|(lead, _)| lead), Some(1));
        waiting[0].holds_nothing = false;
        assert_eq!(plan(&waiting, false), Some((0, Vec::new())));
    }

    #[test]
    fn what_shares_a_pass_is_of_about_one_length() {
        let most = |positions| move |pass: &Waiting| pass.positions() <= positions;
        let others = [100, 20, 110, 95, 300].map(|ids| Some(one(ids, 512)));
        assert_eq!(companions(one(100, 512), &others, never, most(10_000)), [0, 2, 3]);
        // The nearest ones go in first.
        assert_eq!(companions(one(100, 512), &others, never, most(300)), [0, 3]);
        assert_eq!(companions(one(100, 512), &others, never, most(150)), [0; 0]);
        let cannot = [None, Some(one(100, 512)), None];
        assert_eq!(companions(one(100, 512), &cannot, never, most(10_000)), [1]);
        // Little that fills rows up takes no longer than another pass.
        let free = |padding| padding <= 125;
        assert_eq!(companions(one(100, 512), &others, free, most(10_000)), [0, 1, 2, 3]);
        // Chunks count, not prompts.
        let long = [600, 5000].map(|ids| Some(one(ids, 512)));
        assert_eq!(companions(one(700, 512), &long, never, most(10_000)), [0, 1]);
    }

    #[test]
    fn at_most_a_fifth_of_a_pass_fills_rows_up() {
        for lead in 1..60 {
            let others: Vec<_> = (1..60).map(|ids| Some(one(ids, 64))).collect();
            let taken = companions(one(lead, 64), &others, never, |_| true);
            let all = taken
                .iter()
                .fold(one(lead, 64), |pass, at| pass.with(&others[*at].expect("it can share")));
            assert!(all.positions() * 4 <= all.counted * 5, "{lead}: {all:?}");
            assert!(taken.is_sorted() && !taken.is_empty(), "{lead}");
        }
    }
    #[test]
    fn prompts_of_one_kind_share_a_pass_as_far_as_it_and_the_memory_allow() {
        let kinds = [Some(0), Some(0), Some(7), None, Some(0)];
        let waiting = kinds.map(|kind| Waiting { kind, ..one(100, 512) });
        let pace = Pace::of(Duration::from_millis(1), 100, 1);
        let passes = Passes { positions: 1000, room: 1000, n_layers: 30, rows: 0, may_begin: true };
        let plan = |turn: usize, waiting: &[Waiting], passes| {
            part(turn, waiting, pace, passes, |pass| pass.positions() as u64)
        };
        let all = Part { lead: 0, with: vec![1, 4], layers: 6, positions: 300, is_mixed: false };
        assert_eq!(plan(0, &waiting, passes), Some(all.clone()));
        let two = Part { with: vec![1], layers: 10, positions: 200, ..all.clone() };
        assert_eq!(plan(0, &waiting, Passes { positions: 299, ..passes }), Some(two.clone()));
        assert_eq!(plan(0, &waiting, Passes { room: 299, ..passes }), Some(two));
        // What is computed by itself takes nothing with it, not even others that are.
        let alone = [Waiting { kind: None, ..one(100, 512) }; 2];
        let one = Part { with: Vec::new(), layers: 20, positions: 100, ..all };
        assert_eq!(plan(0, &alone, passes), Some(one));
        assert_eq!(plan(0, &[], passes), None);
    }

    #[test]
    fn a_batch_takes_its_step_in_a_whole_pass_that_is_no_longer_than_pays() {
        let waiting: Vec<_> = [Some(0); 12].map(|kind| Waiting { kind, ..one(512, 2048) }).into();
        let pace = Pace::of(Duration::from_millis(50), MIXED, 30);
        let passes =
            Passes { positions: 8192, room: u64::MAX, n_layers: 30, rows: 5, may_begin: true };
        let seen = std::cell::Cell::new(0);
        let plan = |waiting: &[Waiting], passes| {
            let bytes = |pass: &Waiting| {
                seen.set(pass.rows.max(seen.get()));
                pass.positions() as u64
            };
            part(1, waiting, pace, passes, bytes).expect("prompts wait")
        };
        let mixed = plan(&waiting, passes);
        assert!(mixed.is_mixed);
        assert_eq!((mixed.positions, mixed.with.len(), mixed.layers), (MIXED, 7, 30));
        // Memory is asked for the rows of the batch, too.
        assert_eq!(seen.get(), 9);
        let room = Passes { room: 8 * 512, ..passes };
        assert_eq!(plan(&waiting, room).positions, 7 * 512);
        // Without rows, as many prompts as fit share a pass, of which others are not kept from
        // their steps.
        let parts = plan(&waiting, Passes { rows: 0, ..passes });
        assert_eq!((parts.is_mixed, parts.positions), (false, 12 * 512));
        assert!(parts.layers < 30);
        // What is computed by itself goes by itself.
        let alone = [Waiting { kind: None, ..one(512, 2048) }; 2];
        assert!(!plan(&alone, passes).is_mixed);
    }

    #[test]
    fn every_prompt_is_served_though_shorter_ones_keep_coming() {
        // A new short prompt each turn: the long one still gets every fourth turn.
        let mut long = 100;
        for turn in 1..=400 {
            let waiting = [one(10_000, 512), one(8, 512)].map(|one| Waiting { kind: None, ..one });
            let passes = Passes { positions: 512, room: 0, n_layers: 1, rows: 0, may_begin: true };
            let part = part(turn, &waiting, Pace::default(), passes, |_| 0).expect("two wait");
            long -= usize::from(part.lead == 0);
        }
        assert_eq!(long, 0);
    }
}
