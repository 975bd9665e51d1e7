//! The rules by which a window's next token is chosen: from the best token of text, and from the
//! logits of the marks behind the text, times among them.

use super::marks::Marks;

/// The tokens that a window may have.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    suppressed: Vec<u32>,
    suppressed_first: Vec<u32>,
    /// The first id that is no text.
    end: usize,
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

/// The tokens of text that may be said: what is known of them all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    /// The most probable one, of equals the first, and its logit.
    pub best: (u32, f32),
    /// The logsumexp of all.
    pub total: f32,
    /// The logits, where one is drawn.
    pub all: &'a [f32],
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
            end: marks.end as usize,
            times: marks.no_times.filter(|_| has_times).map(times),
        }
    }

    /// The mask of the text, to be added to its logits: for the first token, or for later ones.
    pub fn text_mask(&self, is_first: bool) -> Vec<f32> {
        let mut mask = vec![0.0; self.end];
        for id in self.never(is_first).filter(|id| *id < self.end) {
            mask[id] = f32::NEG_INFINITY;
        }
        mask
    }

    /// The ids that are not said.
    fn never(&self, is_first: bool) -> impl Iterator<Item = usize> {
        let first = if is_first { self.suppressed_first.as_slice() } else { &[] };
        self.suppressed.iter().chain(first).map(|id| *id as usize)
    }

    /// The token behind `said`, by `text`, which is masked already, and by the logits of all ids
    /// from the end on. With a temperature above 0 it is drawn by `uniform`, from 0 to 1.
    pub fn choose(
        &self,
        text: Text<'_>,
        marks: &mut [f32],
        said: &[u32],
        temperature: f32,
        uniform: f64,
    ) -> Chosen {
        let mut masked = Masked { marks, end: self.end, has_text: true };
        for id in self.never(said.is_empty()) {
            masked.range(id..id + 1);
        }
        if let Some(times) = &self.times {
            times.apply(&mut masked, &text, said);
        }
        let Masked { marks, has_text, .. } = masked;
        let of_text = if has_text { text.total } else { f32::NEG_INFINITY };
        let total = logsumexp(&[of_text, logsumexp(marks)]);
        let all = if has_text { text.all } else { &[] };
        let (id, logit) = match temperature > 0.0 {
            true => drawn(all, marks, self.end, temperature, uniform),
            false => {
                let at = largest(marks);
                let mark = marks.get(at).copied().unwrap_or(f32::NEG_INFINITY);
                match has_text && text.best.1 >= mark {
                    true => text.best,
                    false => ((self.end + at) as u32, mark),
                }
            }
        };
        // Where nothing is allowed, the window ends.
        let logprob = if total == f32::NEG_INFINITY { total } else { logit - total };
        Chosen { id, logprob }
    }
}

impl Times {
    /// Times come in pairs, but before the end, and never go back. Where all times together are
    /// more probable than any other token, a time it is.
    fn apply(&self, masked: &mut Masked<'_>, text: &Text<'_>, said: &[u32]) {
        let first = self.first;
        let is_time = |id: &u32| *id as usize >= first;
        masked.range(self.no_times..self.no_times + 1);
        let last_is_time = said.last().is_some_and(is_time);
        let before_is_time = said.len() < 2 || said.get(said.len() - 2).is_some_and(is_time);
        match (last_is_time, before_is_time) {
            (true, true) => masked.range(first..usize::MAX),
            (true, false) => masked.has_text = false,
            (false, _) => {}
        }
        if let Some(last) = said.iter().rev().find(|id| is_time(id)) {
            let ends_pair = last_is_time && !before_is_time;
            masked.range(first..*last as usize + usize::from(!ends_pair));
        }
        if said.is_empty() {
            masked.has_text = false;
            masked.range(masked.end..first);
            if let Some(latest) = self.latest_first {
                masked.range(first + latest + 1..usize::MAX);
            }
        }
        let split = (first - masked.end).min(masked.marks.len());
        let (others, times) = masked.marks.split_at(split);
        let of_text = if masked.has_text { text.best.1 } else { f32::NEG_INFINITY };
        let most = others.iter().copied().fold(of_text, f32::max);
        if logsumexp(times) > most {
            masked.has_text = false;
            masked.range(masked.end..first);
        }
    }
}

/// Tokens of which some are masked away.
struct Masked<'a> {
    /// The logits of the ids from `end` on.
    marks: &'a mut [f32],
    end: usize,
    has_text: bool,
}

impl Masked<'_> {
    /// Masks the marks among `ids`.
    fn range(&mut self, ids: std::ops::Range<usize>) {
        let first = ids.start.saturating_sub(self.end).min(self.marks.len());
        let last = ids.end.saturating_sub(self.end).min(self.marks.len());
        self.marks[first..last.max(first)].fill(f32::NEG_INFINITY);
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
pub(super) fn largest(logits: &[f32]) -> usize {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    logits.iter().position(|logit| *logit == most).unwrap_or(0)
}

/// A token drawn by the probabilities of text and of the marks from `end` on, over `temperature`,
/// and its logit.
fn drawn(text: &[f32], marks: &[f32], end: usize, temperature: f32, uniform: f64) -> (u32, f32) {
    let all = || text.iter().enumerate().chain((end..).zip(marks));
    let most = all().map(|(_, logit)| *logit).fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: &f32| f64::from(((logit - most) / temperature).exp());
    let mut left = uniform * all().map(|(_, logit)| weight(logit)).sum::<f64>();
    let mut best = (end as u32, f32::NEG_INFINITY);
    for (id, logit) in all() {
        left -= weight(logit);
        if left < 0.0 {
            return (id as u32, *logit);
        }
        if *logit > best.1 {
            best = (id as u32, *logit);
        }
    }
    best
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
        let rules = rules(has_times);
        let mask = rules.text_mask(said.is_empty());
        let text: Vec<f32> = logits.iter().zip(mask).map(|(logit, mask)| logit + mask).collect();
        let best = largest(&text);
        let of = Text { best: (best as u32, text[best]), total: logsumexp(&text), all: &text };
        let mut marks = logits[4..].to_vec();
        let chosen = rules.choose(of, &mut marks, said, 0.0, 0.0);
        // A draw at the coldest gives the same.
        let mut again = logits[4..].to_vec();
        let drawn = rules.choose(of, &mut again, said, 1e-3, 0.5);
        assert_eq!(drawn, chosen);
        let has_text = said.last().is_none_or(|last| *last < 7) || said.len() != 3;
        assert!(chosen.logprob <= 1e-6 && (has_text || chosen.id >= 4), "{chosen:?}");
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
    fn log_probabilities_are_those_among_the_allowed() {
        let text = [1.0_f32, 2.0, f32::NEG_INFINITY, f32::NEG_INFINITY];
        let of = Text { best: (1, 2.0), total: logsumexp(&text), all: &text };
        let mut marks = [0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let chosen = rules(false).choose(of, &mut marks, &[1], 0.0, 0.0);
        let expected = 2.0 - logsumexp(&[1.0, 2.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert!((chosen.logprob - expected).abs() < 1e-6, "{chosen:?}");
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let logits = [0.0_f32, (3.0_f32).ln(), f32::NEG_INFINITY];
        for split in 0..=3 {
            let (text, marks) = logits.split_at(split);
            let of = |temperature, uniform| drawn(text, marks, split, temperature, uniform).0;
            assert_eq!([of(1.0, 0.24), of(1.0, 0.26), of(1.0, 1.0)], [0, 1, 1]);
            // Half the temperature: 1 to 9.
            assert_eq!([of(0.5, 0.09), of(0.5, 0.11)], [0, 1]);
        }
    }
}
