//! DRY: the penalty on ids that go on with a sequence which was there before, as llama.cpp has it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use inference_core::Dry;

/// Beyond this exponent of e, an f32 is infinite.
const MOST_EXPONENT: f32 = 88.722_84;
/// The least base whose powers have a bound.
const LEAST_BASE: f32 = 1.000_001;
/// Bytes of a breaker that count, as llama.cpp has it.
const MOST_BYTES: usize = 40;
/// Ids of a breaker's rest that count, as llama.cpp has it.
const MOST_IDS: usize = 20;

/// Texts over which no repeat goes, as ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Breakers {
    /// Ids with which a breaker begins, each with the ids that its rest may be; none of them where
    /// the id holds all of it.
    heads: HashMap<u32, Vec<Vec<u32>>>,
}

impl Breakers {
    /// The breakers `texts`. `tokens` are the texts of all ids, and `encode` makes ids of a text.
    pub fn new(
        texts: &[String],
        tokens: &[Vec<u8>],
        encode: impl Fn(&str) -> Vec<u32>,
    ) -> Breakers {
        let mut breakers = Breakers::default();
        for text in texts {
            let end = (0..=text.len().min(MOST_BYTES)).rfind(|at| text.is_char_boundary(*at));
            breakers.add(&text[..end.unwrap_or(0)], tokens, &encode);
        }
        breakers
    }

    fn add(&mut self, text: &str, tokens: &[Vec<u8>], encode: &impl Fn(&str) -> Vec<u32>) {
        let bytes = text.as_bytes();
        if bytes.is_empty() {
            return;
        }
        let mut tails: HashMap<usize, Vec<u32>> = HashMap::new();
        for (id, token) in (0..).zip(tokens) {
            if token.windows(bytes.len()).any(|part| part == bytes) {
                self.begin(id, Vec::new());
                continue;
            }
            for at in 0..token.len() {
                let held = token.len() - at;
                // Its rest is encoded, so it begins with a character.
                let begins = held < bytes.len()
                    && bytes.starts_with(&token[at..])
                    && text.is_char_boundary(held);
                if begins {
                    let tail = tails.entry(held).or_insert_with(|| {
                        encode(&text[held..]).into_iter().take(MOST_IDS).collect()
                    });
                    self.begin(id, tail.clone());
                }
            }
        }
    }

    fn begin(&mut self, id: u32, tail: Vec<u32>) {
        let tails = self.heads.entry(id).or_default();
        if !tails.contains(&tail) {
            tails.push(tail);
        }
    }

    fn tails(&self, id: u32) -> &[Vec<u32>] {
        self.heads.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Of the ids from the last one back, how many follow the last breaker.
    fn since(&self, back: &[u32]) -> usize {
        for (at, id) in back.iter().enumerate() {
            let fits = |tail: &&Vec<u32>| {
                tail.len() <= at && (0..).zip(tail.iter()).all(|(i, id)| back[at - i - 1] == *id)
            };
            if let Some(longest) = self.tails(*id).iter().filter(fits).map(Vec::len).max() {
                return at - longest;
            }
        }
        back.len()
    }
}

/// The ids of a sequence, and what is taken from the logits of those that go on with a repeat.
#[derive(Clone, Debug)]
pub(crate) struct Repeats {
    dry: Dry,
    breakers: Arc<Breakers>,
    ids: Vec<u32>,
}

impl Repeats {
    /// The state behind `prompt`.
    pub fn new(dry: Dry, breakers: Arc<Breakers>, prompt: &[u32]) -> Repeats {
        Repeats { dry, breakers, ids: prompt.to_vec() }
    }

    /// Takes note of an id that was drawn.
    pub fn observe(&mut self, id: u32) {
        self.ids.push(id);
    }

    /// The numbers that are taken from the logits of ids.
    pub fn penalties(&self) -> BTreeMap<u32, f32> {
        let Dry { multiplier, base, allowed_length, penalty_last_n, .. } = self.dry;
        let most = penalty_last_n.unwrap_or(usize::MAX);
        let back: Vec<u32> = self.ids.iter().rev().take(most).copied().collect();
        let limit = self.breakers.since(&back);
        if back.len() <= allowed_length || limit < allowed_length {
            return BTreeMap::new();
        }
        let mut longest: BTreeMap<u32, usize> = BTreeMap::new();
        for (at, length) in lengths(&back).into_iter().enumerate().skip(1) {
            let length = length.min(limit);
            if length >= allowed_length {
                let known = longest.entry(back[at - 1]).or_default();
                *known = length.max(*known);
            }
        }
        let holds_breaker = |id: u32| self.breakers.tails(id).iter().any(Vec::is_empty);
        longest.retain(|id, _| !holds_breaker(*id));
        let most =
            if base > LEAST_BASE { (MOST_EXPONENT / base.ln()) as usize } else { usize::MAX };
        let penalty = |(id, length): (u32, usize)| {
            let exponent = (length - allowed_length).min(most);
            (id, multiplier * base.powf(exponent as f32))
        };
        longest.into_iter().map(penalty).collect()
    }
}

/// How many ids from each place on are those from the first place on: the Z-function. The first
/// entry says nothing.
fn lengths(ids: &[u32]) -> Vec<usize> {
    let mut lengths = vec![0; ids.len()];
    let (mut left, mut right) = (0, 0);
    for at in 1..ids.len() {
        let mut length = match at < right {
            true => (right - at).min(lengths[at - left]),
            false => 0,
        };
        while at + length < ids.len() && ids[length] == ids[at + length] {
            length += 1;
        }
        if at + length > right {
            (left, right) = (at, at + length);
        }
        lengths[at] = length;
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: [u32; 17] = [1, 2, 3, 4, 5, 1, 2, 3, 6, 7, 0, 2, 3, 4, 1, 2, 3];

    fn of(base: f32, allowed_length: usize, penalty_last_n: Option<usize>) -> Dry {
        let multiplier = 0.8;
        Dry { multiplier, base, allowed_length, penalty_last_n, sequence_breakers: Vec::new() }
    }

    fn penalties(dry: Dry, ids: &[u32], breakers: &[u32]) -> Vec<(u32, f32)> {
        let heads = breakers.iter().map(|id| (*id, vec![Vec::new()])).collect();
        let (prompt, drawn) = ids.split_at(ids.len() / 2);
        let mut repeats = Repeats::new(dry, Arc::new(Breakers { heads }), prompt);
        drawn.iter().for_each(|id| repeats.observe(*id));
        repeats.penalties().into_iter().collect()
    }

    /// The literals are printed by `tests/fixtures/parity/scripts/samplers.py`.
    #[test]
    fn penalties_are_those_of_llama_cpps_definition() {
        let none: &[u32] = &[];
        let doubled = Dry { multiplier: 1.0, ..of(2.0, 0, None) };
        let half = |base, allowed| Dry { multiplier: 0.5, ..of(base, allowed, None) };
        for (dry, ids, breakers, expected) in [
            (of(1.75, 2, None), &TEXT[..], none, &[(4, 1.4), (6, 1.4)][..]),
            (of(1.75, 3, None), &TEXT, none, &[(4, 0.8), (6, 0.8)]),
            (of(1.75, 4, None), &TEXT, none, &[]),
            (
                doubled,
                &TEXT,
                none,
                &[(0, 1.), (1, 1.), (2, 1.), (3, 1.), (4, 8.), (5, 1.), (6, 8.), (7, 1.)],
            ),
            (of(1.75, 2, Some(12)), &TEXT, none, &[(4, 0.8), (6, 1.4)]),
            (of(1.75, 2, Some(6)), &TEXT, none, &[(4, 0.8)]),
            (of(1.75, 2, None), &TEXT, &[1], &[(4, 0.8), (6, 0.8)]),
            (of(1.75, 2, None), &TEXT, &[6], &[(4, 1.4)]),
            (of(1.75, 2, None), &TEXT, &[2], &[]),
            (half(1.5, 2), &[7; 9], none, &[(7, 5.695_312)]),
            (half(1.5, 2), &[1, 2], none, &[]),
            (half(1.5, 1), &[1, 2, 1, 2, 1, 2, 1], none, &[(2, 2.531_25)]),
        ] {
            let found = penalties(dry.clone(), ids, breakers);
            assert_eq!(found.len(), expected.len(), "{dry:?} {found:?}");
            let near = |(a, b): (&(u32, f32), &(u32, f32))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-5;
            assert!(found.iter().zip(expected).all(near), "{dry:?} {breakers:?}: {found:?}");
        }
    }

    #[test]
    fn a_long_repeat_costs_no_more_than_a_number_can_say() {
        let dry = Dry { multiplier: 1.0, ..of(3.0, 0, None) };
        let found = penalties(dry, &[5; 400], &[]);
        assert!(found[0].1.is_finite() && found[0].1 > 1e37, "{found:?}");
        let flat = penalties(of(1.0, 0, None), &[5; 400], &[]);
        assert_eq!(flat, [(5, 0.8)]);
    }

    #[test]
    fn a_breaker_may_be_in_a_token_or_begin_in_one() {
        let tokens = ["a", "\n", ".\n\n", "x<", "br", "><", ">", "é"];
        let tokens: Vec<Vec<u8>> = tokens.iter().map(|text| text.as_bytes().to_vec()).collect();
        let encode = |text: &str| match text {
            "br>" => vec![4, 6],
            ">" => vec![6],
            other => panic!("{other}"),
        };
        let texts = ["\n".to_owned(), "<br>".to_owned()];
        let breakers = Breakers::new(&texts, &tokens, encode);
        let whole = || vec![Vec::new()];
        let heads = [(1, whole()), (2, whole()), (3, vec![vec![4, 6]]), (5, vec![vec![4, 6]])];
        assert_eq!(breakers, Breakers { heads: heads.into_iter().collect() });
        // From the last id back.
        assert_eq!(breakers.since(&[0, 0, 6, 4, 3, 0]), 2);
        assert_eq!(breakers.since(&[0, 0, 4, 6, 3, 0]), 6);
        assert_eq!(breakers.since(&[4, 3, 0, 1]), 3);
    }
}
