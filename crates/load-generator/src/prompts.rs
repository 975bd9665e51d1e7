//! Prompts that are made, each with a beginning of its own so that no cache knows them.

use std::f64::consts::TAU;
use std::ops::Range;

use fastrand::Rng;
use serde_json::Value as Json;

use crate::lines::{Api, Line};

/// Common words, most of which are one token of most vocabularies.
const WORDS: [&str; 64] = [
    "time", "year", "way", "day", "man", "thing", "life", "child", "world", "school", "state",
    "family", "group", "hand", "part", "place", "case", "week", "company", "system", "program",
    "question", "work", "number", "night", "point", "home", "water", "room", "area", "money",
    "story", "month", "book", "job", "word", "side", "house", "service", "friend", "power", "hour",
    "game", "line", "end", "law", "car", "city", "name", "team", "minute", "idea", "body", "back",
    "parent", "face", "level", "office", "door", "health", "person", "art", "war", "history",
];

/// How many words at a prompt's beginning tell its number.
const TELLING: usize = 3;

/// Times of the average that the longest prompts and answers have.
const LONGEST: f64 = 8.0;

/// The source of prompts.
#[derive(Clone, Debug)]
pub enum Source {
    /// Words in an order that differs from prompt to prompt, so that all have as many tokens.
    Words {
        /// Words of a prompt.
        count: usize,
        /// So many of them are common to all prompts.
        shared: usize,
        /// The API that they are sent to.
        api: Api,
    },
    /// Random ids.
    Ids {
        /// Ids of a prompt.
        count: usize,
        /// So many of them are common to all prompts.
        shared: usize,
        /// The range from which they are drawn.
        range: Range<u32>,
    },
    /// Given ones, in turn.
    Lines(Vec<Line>),
}

impl Source {
    /// The request of this number, made from `seed`.
    pub fn request(&self, seed: u64, number: usize) -> Line {
        self.scaled(seed, number, 1.0)
    }

    /// The request of this number with `lengths` of its own, if any: given ones have theirs.
    pub fn of_lengths(&self, seed: u64, number: usize, lengths: Option<Lengths>) -> Line {
        let Some(lengths) = lengths.filter(|_| !matches!(self, Source::Lines(_))) else {
            return self.request(seed, number);
        };
        let mut random = rng(!seed, Some(number));
        let mut times = || lengths.times(&mut random);
        let (prompt, answer) = (times(), times());
        let mut line = self.scaled(seed, number, prompt);
        let answer = scaled(lengths.gen_tokens, answer, 1);
        line.fields.insert("max_tokens".to_owned(), Json::from(answer));
        line
    }

    /// The request of this number, with so many times as many words or ids.
    fn scaled(&self, seed: u64, number: usize, times: f64) -> Line {
        let count = |count: usize, shared: usize| scaled(count, times, shared + 1);
        match self {
            Source::Words { count: words, shared, api } => {
                Line::text(*api, text(seed, number, count(*words, *shared), *shared))
            }
            Source::Ids { count: own, shared, range } => {
                let ids = ids(seed, number, count(*own, *shared), *shared, range.clone());
                let fields = [("prompt".to_owned(), Json::from(ids))].into_iter().collect();
                Line { api: Api::Completions, fields }
            }
            Source::Lines(lines) => lines[number % lines.len()].clone(),
        }
    }
}

/// How the lengths of generated requests differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lengths {
    /// The deviation of the logarithms of lengths, above 0.
    pub spread: f64,
    /// Tokens of an answer, on average.
    pub gen_tokens: usize,
}

impl Lengths {
    /// How many times as long as on average something is: at most [`LONGEST`] times.
    fn times(self, random: &mut Rng) -> f64 {
        // The method of Box and Muller.
        let (radius, angle) = ((1.0 - random.f64()).ln() * -2.0, random.f64() * TAU);
        let normal = radius.sqrt() * angle.cos();
        (self.spread * normal - self.spread * self.spread / 2.0).exp().min(LONGEST)
    }
}

/// So many times `count`, at least `least`.
fn scaled(count: usize, times: f64, least: usize) -> usize {
    ((count as f64 * times).round() as usize).max(least.min(count))
}

/// Ids among which special tokens are unlikely: vocabularies have theirs at either end.
pub fn plain_ids(vocab: u32) -> Range<u32> {
    vocab / 8..(vocab - vocab / 8).max(vocab / 8 + 1)
}

/// The random numbers of prompt `number`; those of the shared part have none.
fn rng(seed: u64, number: Option<usize>) -> Rng {
    let mixed = number.map_or(0, |number| (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Rng::with_seed(seed ^ mixed)
}

/// A number for prompt `number` that other seeds give to other prompts.
fn place(seed: u64, number: usize) -> usize {
    (Rng::with_seed(seed).u64(..) as usize).wrapping_add(number)
}

fn text(seed: u64, number: usize, count: usize, shared: usize) -> String {
    let mut words: Vec<&str> = (0..count).map(|index| WORDS[index % WORDS.len()]).collect();
    let (common, own) = words.split_at_mut(shared.min(count));
    rng(seed, None).shuffle(common);
    let mut different: Vec<&str> = own.iter().take(WORDS.len()).copied().collect();
    rng(seed, Some(number)).shuffle(own);
    let mut place = place(seed, number);
    for at in 0..TELLING.min(different.len()) {
        // Taken out, because a word that stands once cannot be told twice.
        let count = different.len();
        let word = different.swap_remove(place % count);
        place /= count;
        // Exchanged rather than written, so that all prompts have the same words.
        if let Some(found) = own[at..].iter().position(|other| *other == word) {
            own.swap(at, at + found);
        }
    }
    // Each word follows a space, so that the first one has the tokens that it has elsewhere.
    words.iter().flat_map(|word| [" ", *word]).collect()
}

fn ids(seed: u64, number: usize, count: usize, shared: usize, range: Range<u32>) -> Vec<u32> {
    let (mut common, mut own) = (rng(seed, None), rng(seed, Some(number)));
    let width = (range.end - range.start) as usize;
    let id = |index: usize| match index {
        _ if index < shared => common.u32(range.clone()),
        _ if index == shared => range.start + (place(seed, number) % width) as u32,
        _ => own.u32(range.clone()),
    };
    (0..count).map(id).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Lengths, Source, ids, plain_ids, text};
    use crate::lines::{Api, Line};

    fn sorted(text: &str) -> Vec<&str> {
        let mut words: Vec<_> = text.split_whitespace().collect();
        words.sort_unstable();
        words
    }

    #[test]
    fn prompts_have_the_same_words_and_begin_differently() {
        let all: Vec<String> = (0..5000).map(|number| text(7, number, 100, 0)).collect();
        let begin = |text: &String| text.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
        assert_eq!(all.iter().map(begin).collect::<HashSet<_>>().len(), 5000);
        for other in &all {
            assert_eq!(sorted(other), sorted(&all[0]));
        }
        assert_eq!(text(7, 3, 100, 0), all[3], "a prompt can be had again");
        assert_ne!(text(8, 3, 100, 0), all[3], "another call has others");
    }

    #[test]
    fn a_shared_prefix_is_shared_and_no_more() {
        let (one, other) = (text(7, 0, 90, 70), text(7, 1, 90, 70));
        let (one, other): (Vec<_>, Vec<_>) =
            (one.split_whitespace().collect(), other.split_whitespace().collect());
        assert_eq!(one[..70], other[..70]);
        assert_ne!(one[70..73], other[70..73]);
        let (one, other) = (ids(7, 0, 20, 8, 10..90), ids(7, 1, 20, 8, 10..90));
        assert_eq!(one[..8], other[..8]);
        assert_ne!(one[8], other[8]);
        assert!(one.iter().all(|id| (10..90).contains(id)) && one.len() == 20);
    }

    #[test]
    fn lengths_are_spread_around_their_average() {
        let source = Source::Ids { count: 400, shared: 30, range: 10..90 };
        let lengths = Lengths { spread: 0.8, gen_tokens: 100 };
        let request = |number: usize| source.of_lengths(7, number, Some(lengths));
        let sizes = |number: usize| {
            let line = request(number);
            let ids = line.fields["prompt"].as_array().map_or(0, Vec::len);
            (ids as f64, line.fields["max_tokens"].as_u64().unwrap_or(0) as f64)
        };
        let all: Vec<(f64, f64)> = (0..4000).map(sizes).collect();
        for (of, average) in [(0, 400.0), (1, 100.0)] {
            let own: Vec<f64> = all.iter().map(|one| [one.0, one.1][of]).collect();
            let mean = own.iter().sum::<f64>() / own.len() as f64;
            assert!((mean / average - 1.0).abs() < 0.06, "{mean}");
            let half = own.iter().filter(|length| **length < average).count();
            assert!((2400..2900).contains(&half), "{half}: most are shorter than the average");
            assert!(own.iter().all(|length| (1.0..=8.0 * average).contains(length)));
        }
        // Each prompt goes on behind what all share, and can be had again.
        assert!(all.iter().all(|(ids, _)| *ids > 30.0));
        assert_eq!(request(3), source.of_lengths(7, 3, Some(lengths)));
        assert_eq!(source.of_lengths(7, 3, None), source.request(7, 3));
        let given = Source::Lines(vec![Line::text(Api::Completions, "a".into())]);
        assert_eq!(given.of_lengths(7, 0, Some(lengths)), given.request(7, 0));
    }

    #[test]
    fn small_prompts_and_vocabularies_are_possible() {
        assert_eq!(text(7, 1, 1, 0), " time");
        assert_eq!(text(7, 1, 2, 0).split_whitespace().count(), 2);
        assert_eq!(ids(7, 1, 3, 0, plain_ids(1)), [0, 0, 0]);
        assert_eq!(plain_ids(32_000), 4000..28_000);
    }
}
