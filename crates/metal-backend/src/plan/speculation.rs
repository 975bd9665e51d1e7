//! How many draft tokens are verified in a pass, and whether any are.

use std::collections::BTreeMap;
use std::time::Duration;

/// Draft lengths that are chosen among: passes of few lengths recur, and are captured.
const LENGTHS: [usize; 11] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 63];

/// How much what was compared before counts when another draft token is compared.
const REMEMBERED: f64 = 0.9;
/// The draft tokens that count as compared before any was, and how many of them as drawn.
const ASSUMED: (f64, f64) = (2.0, 1.0);

/// The draft tokens of a drafter that count as compared beside those, and as drawn.
const TRUSTED: (f64, f64) = (8.0, 7.5);

/// Passes that are measured of a length before its time is known.
const FEWEST: u32 = 2;
/// Passes of a length that follow each other before any can be measured: the first ones compile
/// kernels, and capture. Then one is tried after so many others.
const TRIES: u32 = 3;
const BETWEEN_TRIES: u64 = 48;
/// The part of a step for which a GPU waits where a pass comes between steps: otherwise the host
/// prepares each one while the device computes the one before.
const SWITCH: f64 = 0.5;
/// The steps that go by on a GPU until steps of a batch are captured again, where its rows have
/// moved since they keep different numbers of tokens.
const MOVED: f64 = 2.0;
/// Times of one length that are kept.
const KEPT: usize = 8;
/// Passes after which a length that did not pay is tried again.
const STALE: u64 = 256;
/// The part of a step that each more position is assumed to take, before any is measured. A CPU
/// computes as long as it reads.
const ASSUMED_POSITION: f64 = 0.5;
const ASSUMED_POSITION_ON_GPU: f64 = 0.1;
/// How many times as many tokens a second a draft has to promise.
const LEAST_GAIN: f64 = 1.03;

/// How often the draft tokens of a row are those that it draws, of late.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Acceptance {
    compared: f64,
    drawn: f64,
}

impl Acceptance {
    /// That of a drafter before any of its tokens is compared: drafts that are not verified teach
    /// nothing of it, so that it begins with trust.
    pub fn of_drafter() -> Acceptance {
        let (compared, drawn) = TRUSTED;
        Acceptance { compared, drawn }
    }

    /// Takes note of a draft token: whether it was drawn.
    pub fn note(&mut self, was_drawn: bool) {
        self.compared = self.compared * REMEMBERED + 1.0;
        self.drawn = self.drawn * REMEMBERED + f64::from(u8::from(was_drawn));
    }

    /// The share of draft tokens that is drawn, of those before which all were.
    pub fn rate(self) -> f64 {
        let (compared, drawn) = ASSUMED;
        (self.drawn + drawn) / (self.compared + compared)
    }

    /// The tokens that a pass gives which verifies so many draft tokens, its own draw included.
    fn tokens(self, length: usize) -> f64 {
        let rate = self.rate();
        (0..=length as i32).map(|drawn| rate.powi(drawn)).sum()
    }
}

/// The draft of a row: how often it was right, and its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drafted {
    pub acceptance: Acceptance,
    /// Tokens; 0: none.
    pub length: usize,
}

impl Drafted {
    /// The tokens that a pass gives which verifies up to so many draft tokens, its own draw
    /// included. Where a step is in flight, its draw has to be that of the draft, too.
    fn tokens(&self, length: usize, in_flight: bool) -> f64 {
        let more = self.acceptance.tokens(self.length.min(length)) - 1.0;
        1.0 + if in_flight { self.acceptance.rate() * more } else { more }
    }

    /// How likely it is that so many tokens are drawn as they were drafted.
    fn all_drawn(&self, length: usize) -> f64 {
        if self.length < length { 0.0 } else { self.acceptance.rate().powi(length as i32) }
    }
}

/// How passes that verify drafts are computed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verifying {
    /// A pass whose draft tokens are not all drawn is followed by one of those that are.
    pub repeat: bool,
    /// A step is in flight, of which nothing is read yet.
    pub switch: bool,
    /// Drafts are made behind what that step draws. Otherwise its draw has to be a draft's first
    /// token, too.
    pub behind_draw: bool,
    /// The share of a step that a drafter takes, which steps without drafts would not have.
    pub drafter: f64,
}

/// How long passes of decoding rows take, by the positions of each row.
#[derive(Debug)]
pub(crate) struct PassCosts {
    on_gpu: bool,
    /// Passes that were measured.
    passes: u64,
    /// By the [`class`] of so many rows, and the positions of each.
    measured: BTreeMap<(usize, usize), Measured>,
}

#[derive(Debug, Default)]
struct Measured {
    /// Seconds, the last ones behind.
    seconds: Vec<f64>,
    count: u32,
    /// Passes that were not measured.
    tries: u32,
    /// The number of the last pass.
    last: u64,
}

impl Measured {
    /// The time of such a pass where nothing comes between: some are longer for reasons of their
    /// own, and few shorter.
    fn usual(&self) -> f64 {
        let mut seconds = self.seconds.clone();
        seconds.sort_by(f64::total_cmp);
        seconds.get(seconds.len() / 3).copied().unwrap_or(f64::INFINITY)
    }
}

/// The count of rows by which times are kept: batches of about as many take about as long.
fn class(rows: usize) -> usize {
    rows.next_power_of_two()
}

impl PassCosts {
    /// Those of a GPU, or of a CPU, before any is measured.
    pub fn new(on_gpu: bool) -> PassCosts {
        PassCosts { on_gpu, passes: 0, measured: BTreeMap::new() }
    }

    /// Takes note of a pass that took longer than others are expected to: of its time only where
    /// others of its length were measured.
    pub fn note_try(&mut self, rows: usize, positions: usize, took: Duration) {
        let measured = self.measured.entry((class(rows), positions)).or_default();
        if measured.count > 0 {
            return self.note(rows, positions, took);
        }
        self.passes += 1;
        (measured.tries, measured.last) = (measured.tries + 1, self.passes);
    }

    /// Takes note of a pass of so many `rows` and positions of each.
    pub fn note(&mut self, rows: usize, positions: usize, took: Duration) {
        self.passes += 1;
        let measured = self.measured.entry((class(rows), positions)).or_default();
        if measured.seconds.len() == KEPT {
            measured.seconds.remove(0);
        }
        measured.seconds.push(took.as_secs_f64());
        (measured.count, measured.last) = (measured.count + 1, self.passes);
    }

    /// How many draft tokens of each row the next pass verifies, at most `most`; 0: none, since
    /// steps give more tokens a second. Rows with shorter drafts wait for the longest.
    pub fn draft_length(&self, rows: &[Drafted], most: usize, verifying: Verifying) -> usize {
        let longest = rows.iter().map(|row| row.length).max().unwrap_or(0);
        let Some(step) = self.step(rows.len()) else { return 0 };
        let without = LEAST_GAIN * rows.len() as f64 / (step * (1.0 - verifying.drafter));
        let lengths = LENGTHS.into_iter().filter(|length| *length < most).chain([most]);
        let rates = lengths.filter(|length| (1..=longest).contains(length)).map(|length| {
            let in_flight = verifying.switch && !verifying.behind_draw;
            let tokens = rows.iter().map(|row| row.tokens(length, in_flight));
            let pass = self.seconds(rows.len(), 1 + length, step);
            let not_all = 1.0 - rows.iter().map(|row| row.all_drawn(length)).product::<f64>();
            let again = if verifying.repeat { not_all * pass } else { 0.0 };
            let switch = if verifying.switch { SWITCH } else { SWITCH / 2.0 };
            let moved = if rows.len() > 1 { not_all * MOVED } else { 0.0 };
            let between = if self.on_gpu { (switch + moved) * step } else { 0.0 };
            (length, tokens.sum::<f64>() / (pass + again + between))
        });
        let best = rates.max_by(|(_, a), (_, b)| a.total_cmp(b));
        best.filter(|(_, rate)| *rate > without).map_or(0, |(length, _)| length)
    }

    /// Seconds of a step of so many rows, once enough were measured.
    fn step(&self, rows: usize) -> Option<f64> {
        let measured = self.measured.get(&(class(rows), 1))?;
        (measured.count >= FEWEST).then(|| measured.usual())
    }

    /// Seconds of a pass: what was measured, or what others let expect where that is too little or
    /// too old.
    fn seconds(&self, rows: usize, positions: usize, step: f64) -> f64 {
        let is_known = |of: &Measured| of.count >= FEWEST && self.passes - of.last <= STALE;
        let known = |(key, of): (&(usize, usize), &Measured)| {
            is_known(of).then(|| (key.1 as f64, of.usual()))
        };
        let rows = class(rows);
        let own = self.measured.get(&(rows, positions));
        if let Some(own) = own.filter(|own| is_known(own)) {
            return own.usual();
        }
        let waits = |of: &Measured| {
            of.count == 0 && of.tries >= TRIES && self.passes - of.last <= BETWEEN_TRIES
        };
        // Another length would be tried in vain, too.
        let mut others = self.measured.range((rows, 2)..=(rows, usize::MAX));
        if own.is_none_or(|own| own.count == 0) && others.any(|(_, of)| waits(of)) {
            return f64::INFINITY;
        }
        let shorter = self.measured.range((rows, 2)..(rows, positions)).rev().find_map(known);
        let longer = self.measured.range((rows, positions + 1)..=(rows, usize::MAX));
        let (from, seconds) = shorter.unwrap_or((1.0, step));
        let each = match longer.filter_map(known).next() {
            Some((to, of_longer)) => (of_longer - seconds).max(0.0) / (to - from),
            None if self.on_gpu => ASSUMED_POSITION_ON_GPU * step,
            None => ASSUMED_POSITION * step,
        };
        let expected = seconds + (positions as f64 - from) * each;
        own.map_or(expected, |own| own.usual().min(expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Verifying =
        Verifying { repeat: false, switch: false, behind_draw: false, drafter: 0.0 };
    const REPEATED: Verifying = Verifying { repeat: true, ..NOTHING };
    const STEP: Duration = Duration::from_millis(10);

    fn acceptance(drawn: usize, compared: usize) -> Acceptance {
        let mut acceptance = Acceptance::default();
        (0..compared).for_each(|at| acceptance.note(at < drawn));
        acceptance
    }

    fn drafted(drawn: usize, length: usize) -> Drafted {
        Drafted { acceptance: acceptance(drawn, 40), length }
    }

    /// Costs where a step takes [`STEP`], and each more position so many hundredths of it.
    fn costs(on_gpu: bool, rows: usize, hundredths: u32) -> PassCosts {
        let mut costs = PassCosts::new(on_gpu);
        for positions in [1, 2, 3, 4, 5, 7, 9, 13, 17] {
            let took = STEP + STEP * hundredths * (positions - 1) / 100;
            (0..8).for_each(|_| costs.note(rows, positions as usize, took));
        }
        costs
    }

    #[test]
    fn acceptance_follows_the_last_tokens() {
        assert_eq!(Acceptance::default().rate(), 0.5);
        assert!(acceptance(40, 40).rate() > 0.9);
        assert!(acceptance(0, 40).rate() < 0.1);
        assert!(acceptance(30, 40).rate() < 0.4, "the last ten were none");
        let certain = acceptance(400, 400);
        assert!((certain.tokens(4) - 5.0).abs() < 1.0, "{}", certain.tokens(4));
        assert_eq!(certain.tokens(0), 1.0);
    }

    #[test]
    fn drafts_are_as_long_as_they_pay() {
        let found = |hundredths, drawn| {
            costs(false, 1, hundredths).draft_length(&[drafted(drawn, 16)], 16, NOTHING)
        };
        // Positions that cost next to nothing, half a step, and a step.
        assert_eq!([found(2, 40), found(10, 0)], [16, 0]);
        assert!((2..=6).contains(&found(50, 40)) && found(50, 0) == 0);
        assert_eq!(found(100, 40), 0);
        let costs = costs(false, 1, 10);
        let middling = Drafted { acceptance: Acceptance::default(), length: 16 };
        let found = costs.draft_length(&[middling], 16, NOTHING);
        assert!((1..=4).contains(&found), "{found} where half of the tokens are drawn");
        assert_eq!(costs.draft_length(&[drafted(40, 3)], 16, NOTHING), 3);
        assert_eq!(costs.draft_length(&[drafted(40, 16)], 5, NOTHING), 5);
        assert_eq!(
            costs.draft_length(&[drafted(40, 5)], 16, NOTHING),
            4,
            "passes of few lengths recur"
        );
        assert_eq!(costs.draft_length(&[drafted(40, 0)], 16, NOTHING), 0);
        assert_eq!(costs.draft_length(&[drafted(40, 16)], 0, NOTHING), 0);
        // A pass that is computed again is shorter, so that it seldom is.
        let found = costs.draft_length(&[drafted(40, 16)], 16, REPEATED);
        assert!((1..=8).contains(&found), "{found}");
        assert_eq!(costs.draft_length(&[middling], 16, REPEATED), 0);
    }

    #[test]
    fn a_drafter_is_trusted_until_its_drafts_fail_and_pays_for_its_own_time() {
        let fresh = Drafted { acceptance: Acceptance::of_drafter(), length: 4 };
        let mut unknown = PassCosts::new(false);
        (0..FEWEST).for_each(|_| unknown.note(1, 1, STEP));
        let behind_draw = Verifying { behind_draw: true, ..NOTHING };
        assert!(unknown.draft_length(&[fresh], 4, behind_draw) > 0);
        let repeated = Verifying { repeat: true, ..behind_draw };
        assert!(unknown.draft_length(&[fresh], 4, repeated) > 0, "a second pass is seldom needed");
        let mut failed = fresh;
        (0..20).for_each(|_| failed.acceptance.note(false));
        assert_eq!(unknown.draft_length(&[failed], 4, behind_draw), 0);
        // A pass gives 1.5 tokens and takes 1.2 steps, of which the drafter takes a third.
        let costs = costs(false, 1, 20);
        let half = Drafted { acceptance: Acceptance::default(), length: 1 };
        assert_eq!(costs.draft_length(&[half], 1, behind_draw), 1);
        let third = Verifying { drafter: 0.33, ..behind_draw };
        assert_eq!(costs.draft_length(&[half], 1, third), 0);
    }

    #[test]
    fn rows_without_drafts_wait_no_longer_than_others_gain() {
        let with = |count: usize| {
            let row = |at: usize| drafted(40, if at < count { 8 } else { 0 });
            (0..8).map(row).collect::<Vec<_>>()
        };
        assert_eq!(costs(true, 8, 20).draft_length(&with(8), 8, NOTHING), 8);
        assert_eq!(costs(true, 8, 20).draft_length(&with(1), 8, NOTHING), 0);
        assert_eq!(costs(true, 8, 1).draft_length(&with(1), 8, NOTHING), 0, "rows are moved");
        assert_eq!(costs(false, 8, 1).draft_length(&with(1), 8, NOTHING), 8);
    }

    #[test]
    fn a_length_is_tried_until_it_is_known_and_again_when_that_is_long_ago() {
        let mut costs = PassCosts::new(true);
        let row = [drafted(40, 4)];
        assert_eq!(costs.draft_length(&row, 4, NOTHING), 0, "a step's time is not known");
        (0..FEWEST).for_each(|_| costs.note(1, 1, STEP));
        for _ in 0..FEWEST {
            assert_eq!(costs.draft_length(&row, 4, NOTHING), 4);
            costs.note(1, 5, 9 * STEP);
        }
        let shorter = "shorter ones are expected to take as long";
        assert_eq!(costs.draft_length(&row, 4, NOTHING), 0, "{shorter}");
        (0..STALE).for_each(|_| costs.note(1, 1, STEP));
        assert_eq!(costs.draft_length(&row, 4, NOTHING), 0);
        costs.note(1, 1, STEP);
        assert_eq!(costs.draft_length(&row, 4, NOTHING), 4);
        costs.note(1, 5, 9 * STEP);
        assert_eq!(costs.draft_length(&row, 4, NOTHING), 0, "once was enough");
    }

    #[test]
    fn passes_that_are_not_captured_yet_are_tried_now_and_then() {
        let mut costs = PassCosts::new(true);
        // No draft is longer than one token.
        let row = [drafted(40, 1)];
        (0..FEWEST).for_each(|_| costs.note(1, 1, STEP));
        for _ in 0..TRIES {
            assert_eq!(costs.draft_length(&row, 1, NOTHING), 1);
            costs.note_try(1, 2, STEP);
        }
        for _ in 0..3 {
            for _ in 0..=BETWEEN_TRIES {
                assert_eq!(costs.draft_length(&row, 1, NOTHING), 0);
                costs.note(1, 1, STEP);
            }
            assert_eq!(costs.draft_length(&row, 1, NOTHING), 1);
            costs.note_try(1, 2, STEP);
        }
        (0..=BETWEEN_TRIES).for_each(|_| costs.note(1, 1, STEP));
        (0..FEWEST).for_each(|_| costs.note(1, 2, STEP));
        assert_eq!(costs.draft_length(&row, 1, NOTHING), 1, "it is captured now");
    }
}
