//! The rules by which a window's next token is chosen, from its logits on the host.

use super::marks::Marks;

/// More of the probability is never masked away without counting anew what is left.
const MOST_MASKED: f64 = 0.99;

/// The tokens that a window may have.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    suppressed: Vec<u32>,
    suppressed_first: Vec<u32>,
    end: u32,
    times: Option<Times>,
}

/// The rules of times, which are tokens too.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// The id of 0 s.
    first: usize,
    no_times: usize,
    latest_first: Option<usize>,
}

/// A token, and the logarithm of its probability among those that were allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Chosen {
    pub id: u32,
    pub logprob: f32,
}

impl Rules {
    /// Those of a model, with or without times.
    pub fn new(marks: &Marks, has_times: bool) -> Rules {
        let times = |no_times: u32| Times {
            first: no_times as usize + 1,
            no_times: no_times as usize,
            latest_first: marks.latest_first_time.map(|latest| latest as usize),
        };
        Rules {
            suppressed: marks.suppressed.clone(),
            suppressed_first: marks.suppressed_first.clone(),
            end: marks.end,
            times: marks.no_times.filter(|_| has_times).map(times),
        }
    }

    /// The token behind `said` by `logits`, whose logsumexp is `total`. With a temperature above 0
    /// it is drawn by `uniform`, from 0 to 1.
    pub fn choose(
        &self,
        logits: &mut [f32],
        total: f32,
        said: &[u32],
        temperature: f32,
        uniform: f64,
    ) -> Chosen {
        let mut masked = Masked { logits, total, removed: 0.0 };
        if said.is_empty() {
            masked.ids(&self.suppressed_first);
        }
        masked.ids(&self.suppressed);
        if let Some(times) = &self.times {
            times.apply(&mut masked, said, self.end as usize);
        }
        let total = masked.remaining();
        let logits: &[f32] = masked.logits;
        let id = match temperature > 0.0 {
            true => drawn(logits, temperature, uniform),
            false => largest(logits),
        };
        Chosen { id: id as u32, logprob: logits[id] - total }
    }
}

impl Times {
    /// Times come in pairs, but before the end, and never go back. Where all times together are
    /// more probable than any other token, a time it is.
    fn apply(&self, masked: &mut Masked<'_>, said: &[u32], end: usize) {
        let first = self.first.min(masked.logits.len());
        let is_time = |id: &u32| *id as usize >= first;
        masked.range(self.no_times..self.no_times + 1);
        let last_is_time = said.last().is_some_and(is_time);
        let before_is_time = said.len() < 2 || said.get(said.len() - 2).is_some_and(is_time);
        match (last_is_time, before_is_time) {
            (true, true) => masked.range(first..usize::MAX),
            (true, false) => masked.range(0..end),
            (false, _) => {}
        }
        if let Some(last) = said.iter().rev().find(|id| is_time(id)) {
            let ends_pair = last_is_time && !before_is_time;
            masked.range(first..*last as usize + usize::from(!ends_pair));
        }
        if said.is_empty() {
            masked.range(0..first);
            if let Some(latest) = self.latest_first {
                masked.range(first + latest + 1..usize::MAX);
            }
        }
        let (text, times) = masked.logits.split_at(first);
        let most = text.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if logsumexp(times) > most {
            masked.range(0..first);
        }
    }
}

/// Logits of which some are masked away.
struct Masked<'a> {
    logits: &'a mut [f32],
    /// The logsumexp of all.
    total: f32,
    /// The probability of those that are masked.
    removed: f64,
}

impl Masked<'_> {
    fn one(&mut self, id: usize) {
        if let Some(logit) = self.logits.get_mut(id)
            && *logit > f32::NEG_INFINITY
        {
            self.removed += f64::from((*logit - self.total).exp());
            *logit = f32::NEG_INFINITY;
        }
    }

    fn ids(&mut self, ids: &[u32]) {
        ids.iter().for_each(|id| self.one(*id as usize));
    }

    fn range(&mut self, ids: std::ops::Range<usize>) {
        let end = ids.end.min(self.logits.len());
        (ids.start..end).for_each(|id| self.one(id));
    }

    /// The logsumexp of those that are left.
    fn remaining(&self) -> f32 {
        match self.removed <= MOST_MASKED {
            true => self.total + (1.0 - self.removed).ln() as f32,
            false => logsumexp(self.logits),
        }
    }
}

/// The logarithm of the sum of exponentials; of nothing, negative infinity.
pub(super) fn logsumexp(logits: &[f32]) -> f32 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if most == f32::NEG_INFINITY {
        return most;
    }
    let sum: f64 = logits.iter().map(|logit| f64::from((logit - most).exp())).sum();
    most + sum.ln() as f32
}

/// The index of the largest one, of equals the first.
fn largest(logits: &[f32]) -> usize {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    logits.iter().position(|logit| *logit == most).unwrap_or(0)
}

/// An index drawn by the probabilities of `logits` over `temperature`.
fn drawn(logits: &[f32], temperature: f32, uniform: f64) -> usize {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: &f32| f64::from(((logit - most) / temperature).exp());
    let mut left = uniform * logits.iter().map(weight).sum::<f64>();
    for (id, logit) in logits.iter().enumerate() {
        left -= weight(logit);
        if left < 0.0 {
            return id;
        }
    }
    largest(logits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text has the ids 0 to 3, the end is 4, no times is 6, and times are 7 to 11.
    fn rules(has_times: bool) -> Rules {
        Rules {
            suppressed: vec![3],
            suppressed_first: vec![0, 4],
            end: 4,
            times: has_times.then_some(Times { first: 7, no_times: 6, latest_first: Some(2) }),
        }
    }

    fn chosen(has_times: bool, logits: [f32; 12], said: &[u32]) -> u32 {
        let mut row = logits;
        let total = logsumexp(&logits);
        let chosen = rules(has_times).choose(&mut row, total, said, 0.0, 0.0);
        let expected = row[chosen.id as usize] - logsumexp(&row);
        assert!((chosen.logprob - expected).abs() < 1e-5, "{chosen:?} {expected}");
        chosen.id
    }

    #[test]
    fn suppressed_tokens_are_not_said_and_some_not_first() {
        let logits = [9.0, 1.0, 2.0, 20.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(chosen(false, logits, &[]), 2);
        assert_eq!(chosen(false, logits, &[2]), 0);
    }

    #[test]
    fn times_come_first_in_pairs_and_in_order() {
        let text = [9.0, 8.0, 0.0, 0.0, 7.0, 0.0, 30.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        // The first is a time, and not later than the third one.
        assert_eq!(chosen(true, text, &[]), 9);
        // Behind the first time comes text.
        assert_eq!(chosen(true, text, &[8]), 0);
        // Behind a time that ends a segment come the end or a time, not an earlier one.
        assert_eq!(chosen(true, text, &[7, 1, 9]), 4);
        let late = [9.0, 8.0, 0.0, 0.0, 0.0, 0.0, 30.0, 6.0, 6.0, 1.0, 2.0, 0.0];
        assert_eq!(chosen(true, late, &[7, 1, 9]), 10);
        // A pair is whole: then text, and no time that was.
        assert_eq!(chosen(true, late, &[7, 1, 9, 9]), 0);
        assert_eq!(chosen(true, late, &[7, 1, 9, 9, 1]), 0);
    }

    #[test]
    fn a_time_it_is_where_all_times_together_are_more_probable() {
        let logits = [2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.5, 1.0, 1.0];
        assert_eq!(chosen(true, logits, &[7, 1]), 9);
        let logits = [3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.5, 1.0, 1.0];
        assert_eq!(chosen(true, logits, &[7, 1]), 0);
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let logits = [0.0_f32, (3.0_f32).ln(), f32::NEG_INFINITY];
        assert_eq!(drawn(&logits, 1.0, 0.24), 0);
        assert_eq!(drawn(&logits, 1.0, 0.26), 1);
        assert_eq!(drawn(&logits, 1.0, 1.0), 1);
        // Half the temperature: 1 to 9.
        assert_eq!(drawn(&logits, 0.5, 0.09), 0);
        assert_eq!(drawn(&logits, 0.5, 0.11), 1);
    }
}
