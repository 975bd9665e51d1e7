//! Greedy answers with their logits, and how far two computations of one are apart.

use serde::{Deserialize, Serialize};

/// The answers in one type.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answers {
    /// `f32`, `f16` or `bf16`.
    pub dtype: String,
    /// Of one model.
    pub answers: Vec<Answer>,
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Ids of the prompt.
    pub prompt: usize,
    /// It was computed beside others.
    pub beside: bool,
    /// Its tokens.
    pub steps: Vec<Step>,
}

/// A token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The id.
    pub id: u32,
    /// From which it was chosen; `None` for one that is no number.
    pub logits: Vec<Option<f32>>,
}

/// How far answers are from those that were expected.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Distance {
    /// Tokens that were compared.
    pub tokens: usize,
    /// The largest difference of a logit, as a part of the largest logit of its token.
    pub largest_difference: f64,
    /// The first thing that is wrong.
    pub wrong: Option<String>,
}

/// The largest difference that rounding explains, as a part of the largest logit.
pub fn allowed(dtype: &str, device: &str) -> f64 {
    match (dtype, device) {
        // NVIDIA's units for matrices round what they multiply to 10 bits.
        ("f32", "cuda") => 0.02,
        ("f32", _) => 0.001,
        ("f16", _) => 0.03,
        _ => 0.2,
    }
}

impl Distance {
    /// The distance of all `found` from those of `expected` with prompts of the same length, where
    /// differences up to `allowed` are none.
    pub fn of(found: &[Answer], expected: &[Answer], allowed: f64) -> Distance {
        let mut all = Distance::default();
        for answer in found {
            match expected.iter().find(|other| other.prompt == answer.prompt) {
                Some(other) => all.add(answer, other, allowed),
                None => all.tell(answer, "there is none to compare with".to_owned()),
            }
        }
        all
    }

    fn add(&mut self, found: &Answer, expected: &Answer, allowed: f64) {
        if found.steps.len() != expected.steps.len() {
            let (ours, theirs) = (found.steps.len(), expected.steps.len());
            return self.tell(found, format!("{ours} tokens, expected {theirs}"));
        }
        for (at, (step, other)) in found.steps.iter().zip(&expected.steps).enumerate() {
            self.tokens += 1;
            let Some(difference) = difference(step, other) else {
                return self.tell(found, format!("token {at} has logits that are no numbers"));
            };
            self.largest_difference = self.largest_difference.max(difference);
            if difference > allowed {
                let told = format!("a logit of token {at} is {difference:.2e} off");
                return self.tell(found, format!("{told}, expected at most {allowed:.0e}"));
            }
            if step.id != other.id {
                // Such a difference lets one of two about equally likely ones be chosen; what
                // follows has another context.
                if lead(other, step.id) > 2.0 * difference {
                    let told = format!("token {at} is {}, expected {}", step.id, other.id);
                    self.tell(found, told);
                }
                return;
            }
        }
    }

    fn tell(&mut self, answer: &Answer, what: String) {
        let place = if answer.beside { "beside others" } else { "alone" };
        let prompt = answer.prompt;
        self.wrong.get_or_insert_with(|| format!("prompt of {prompt} {place}: {what}"));
    }
}

/// The largest difference of two tokens' logits, as a part of the largest of `expected`; `None`
/// where some are no numbers.
fn difference(found: &Step, expected: &Step) -> Option<f64> {
    if found.logits.len() != expected.logits.len() {
        return None;
    }
    let mut largest = 0.0f64;
    for (ours, theirs) in found.logits.iter().zip(&expected.logits) {
        let difference = f64::from((*ours)?) - f64::from((*theirs)?);
        largest = largest.max(difference.abs());
    }
    let most = most(expected);
    largest.is_finite().then(|| if most > 0.0 { largest / most } else { largest })
}

fn most(step: &Step) -> f64 {
    step.logits.iter().flatten().map(|logit| f64::from(logit.abs())).fold(0.0, f64::max)
}

/// How far the chosen id of `step` is before `id`, as a part of the largest logit.
fn lead(step: &Step, id: u32) -> f64 {
    let logit = |id: u32| step.logits.get(id as usize).copied().flatten().map(f64::from);
    match (logit(step.id), logit(id)) {
        (Some(own), Some(other)) => (own - other) / most(step).max(f64::MIN_POSITIVE),
        _ => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Distance, Step};

    fn step(id: u32, logits: [f32; 3]) -> Step {
        Step { id, logits: logits.map(Some).to_vec() }
    }

    fn answer(steps: Vec<Step>) -> Vec<Answer> {
        vec![Answer { prompt: 7, beside: false, steps }]
    }

    fn expected() -> Vec<Answer> {
        answer(vec![step(0, [4.0, 1.0, 0.0]), step(1, [0.0, 4.0, 3.9])])
    }

    #[test]
    fn the_same_answers_have_no_distance() {
        let found = Distance::of(&expected(), &expected(), 0.01);
        assert_eq!(found, Distance { tokens: 2, largest_difference: 0.0, wrong: None });
    }

    #[test]
    fn a_wrong_token_is_told_with_its_place() {
        let mut found = expected();
        found[0].steps[0].id = 1;
        let wrong = Distance::of(&found, &expected(), 0.01).wrong.unwrap();
        assert_eq!(wrong, "prompt of 7 alone: token 0 is 1, expected 0");
    }

    #[test]
    fn one_of_two_likely_tokens_is_not_wrong_and_ends_the_comparison() {
        let mut found = expected();
        found[0].steps[0] = step(0, [4.0, 1.0, 0.0]);
        found[0].steps[1] = step(2, [0.0, 3.95, 3.96]);
        found[0].steps.push(step(0, [9.0, 0.0, 0.0]));
        let mut other = expected();
        other[0].steps.push(step(1, [0.0, 9.0, 0.0]));
        let distance = Distance::of(&found, &other, 0.02);
        assert_eq!((distance.tokens, distance.wrong), (2, None));
    }

    #[test]
    fn logits_that_are_off_or_no_numbers_or_missing_are_wrong() {
        let wrong = |change: fn(&mut Vec<Step>)| {
            let mut found = expected();
            change(&mut found[0].steps);
            Distance::of(&found, &expected(), 0.01).wrong.unwrap()
        };
        assert!(wrong(|steps| steps[1].logits[0] = Some(0.1)).contains("logit of token 1"));
        assert!(wrong(|steps| steps[1].logits[0] = None).contains("no numbers"));
        assert!(wrong(|steps| steps[1].logits[0] = Some(f32::INFINITY)).contains("no numbers"));
        assert!(wrong(|steps| steps[1].logits.truncate(2)).contains("no numbers"));
        assert!(wrong(|steps| steps.truncate(1)).contains("1 tokens, expected 2"));
    }

    #[test]
    fn an_answer_beside_others_is_compared_with_the_one_alone() {
        let mut found = expected();
        found[0].beside = true;
        found[0].steps[0].id = 2;
        let wrong = Distance::of(&found, &expected(), 0.01).wrong.unwrap();
        assert!(wrong.starts_with("prompt of 7 beside others: token 0 is 2"), "{wrong}");
        found[0].prompt = 8;
        let wrong = Distance::of(&found, &expected(), 0.01).wrong.unwrap();
        assert!(wrong.contains("none to compare with"), "{wrong}");
    }
}
