//! How a router's logits choose and weigh experts.

use mlx_ffi::{Array, Dtype, Indices, Result, cuda, ops};

/// How the router's logits choose and weigh experts.
#[derive(Debug)]
pub(crate) enum Routing {
    /// The most likely experts, by their probabilities among all.
    Probabilities,
    /// The most likely experts, by their probabilities among the chosen.
    Normalised,
    /// The most likely experts, by their probabilities among the chosen, from logits that were
    /// never compared with those of all (gpt-oss): rounding differs.
    Logits,
    /// As `Logits`, the weight of each expert being multiplied with its own of these, `[experts]`
    /// (Gemma 4).
    ScaledLogits(Array),
    /// The best scores, which a correction and groups may change for the choice alone.
    Scored(ScoredRouting),
    /// The two most likely experts. Each has its probability among those that are not chosen yet
    /// and whose logits are near its own (Phi MoE).
    Near {
        /// How far a logit may be below the best one, as a part of the larger of both.
        distance: f32,
    },
}

/// Routing by scores: experts are chosen by corrected scores and weighed by plain ones.
#[derive(Debug)]
pub(crate) struct ScoredRouting {
    pub score: Score,
    /// Added to scores for the choice alone, `[experts]` F32.
    pub correction: Option<Array>,
    pub groups: Option<ExpertGroups>,
    /// The weights of the chosen are divided by their sum and this; `None`: they are not.
    pub normaliser: Option<f32>,
    /// The factor of the weights.
    pub factor: f32,
}

/// The function from a logit to a score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Score {
    /// The probability among all experts.
    Softmax,
    /// `1 / (1 + exp(-x))`, of each expert by itself.
    Sigmoid,
    /// The sigmoid of logits that tanh squashed to ± this.
    CappedSigmoid(f32),
}

/// Groups of neighbouring experts, of which only the best are chosen from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpertGroups {
    /// Groups that there are; each has two experts or more.
    pub count: i32,
    /// Groups that are chosen from.
    pub kept: i32,
    pub by: GroupScore,
}

/// The score of a group of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupScore {
    /// That of its best expert (DeepSeek V2).
    Best,
    /// The sum of those of its two best experts (DeepSeek V3).
    BestTwo,
}

impl GroupScore {
    /// Experts whose scores are summed.
    fn experts(self) -> i32 {
        match self {
            GroupScore::Best => 1,
            GroupScore::BestTwo => 2,
        }
    }
}

impl Routing {
    /// How our own kernels for CUDA choose `count` experts by `logits`, `[…, experts]`, where they
    /// know that.
    pub fn on_cuda(&self, logits: &Array, count: i32) -> Option<cuda::Router<'_>> {
        self.as_router(count).filter(|router| cuda::takes_route(logits, router))
    }

    fn as_router(&self, choices: i32) -> Option<cuda::Router<'_>> {
        let (score, factor) = (cuda::Score::Softmax, 1.0);
        let plain = |normaliser, scales| cuda::Router {
            score,
            correction: None,
            normaliser,
            factor,
            choices,
            groups: None,
            scales,
        };
        match self {
            Routing::Probabilities => Some(plain(None, None)),
            Routing::Normalised | Routing::Logits => Some(plain(Some(0.0), None)),
            // Kernels know groups by their two best experts.
            Routing::Scored(ScoredRouting {
                groups: Some(ExpertGroups { by: GroupScore::Best, .. }),
                ..
            }) => None,
            Routing::Scored(scored) => Some(cuda::Router {
                score: match scored.score {
                    Score::Softmax => cuda::Score::Softmax,
                    Score::Sigmoid => cuda::Score::Sigmoid,
                    Score::CappedSigmoid(_) => return None,
                },
                correction: scored.correction.as_ref(),
                normaliser: scored.normaliser,
                factor: scored.factor,
                choices,
                groups: scored
                    .groups
                    .map(|ExpertGroups { count, kept, .. }| cuda::Groups { count, kept }),
                scales: None,
            }),
            Routing::ScaledLogits(scales) => Some(plain(Some(0.0), Some(scales))),
            Routing::Near { .. } => None,
        }
    }

    /// Logits `[t, experts]` to the `count` chosen experts and their weights in `dtype`, both
    /// `[t, count]`.
    pub fn route(&self, logits: &Array, count: i32, dtype: Dtype) -> Result<(Indices, Array)> {
        // In f32: in 16 bits, probabilities that differ would tie.
        let exact = || ops::astype(logits, Dtype::F32);
        let (indices, weights) = match self {
            Routing::Logits => {
                let (indices, logits) = best(logits, logits, count)?;
                (indices, ops::softmax(&logits, -1, true)?)
            }
            Routing::ScaledLogits(scales) => {
                let (indices, logits) = best(logits, logits, count)?;
                let scales = ops::take(scales, &indices, 0)?;
                (indices, ops::multiply(&ops::softmax(&logits, -1, true)?, &scales)?)
            }
            Routing::Probabilities => {
                let scores = ops::softmax(&exact()?, -1, true)?;
                best(&scores, &scores, count)?
            }
            Routing::Normalised => {
                let scores = ops::softmax(&exact()?, -1, true)?;
                let (indices, weights) = best(&scores, &scores, count)?;
                (indices, ops::divide(&weights, &ops::sum(&weights, -1, true)?)?)
            }
            Routing::Scored(scored) => scored.route(&exact()?, count)?,
            Routing::Near { distance } => near(&exact()?, *distance)?,
        };
        Ok((indices, ops::astype(&weights, dtype)?))
    }
}

impl ScoredRouting {
    fn route(&self, logits: &Array, count: i32) -> Result<(Indices, Array)> {
        let scores = match self.score {
            Score::Softmax => ops::softmax(logits, -1, true)?,
            Score::Sigmoid => ops::sigmoid(logits)?,
            Score::CappedSigmoid(cap) => {
                let cap = Array::scalar(cap, Dtype::F32)?;
                let squashed = ops::tanh(&ops::divide(logits, &cap)?)?;
                ops::sigmoid(&ops::multiply(&squashed, &cap)?)?
            }
        };
        let corrected = match &self.correction {
            None => scores.share()?,
            Some(correction) => ops::add(&scores, correction)?,
        };
        let choice = match self.groups {
            None => corrected,
            Some(groups) => groups.mask(&corrected)?,
        };
        let (indices, mut weights) = best(&choice, &scores, count)?;
        let scalar = |value| Array::scalar(value, Dtype::F32);
        if let Some(normaliser) = self.normaliser {
            let sum = ops::add(&ops::sum(&weights, -1, true)?, &scalar(normaliser)?)?;
            weights = ops::divide(&weights, &sum)?;
        }
        if self.factor != 1.0 {
            weights = ops::multiply(&weights, &scalar(self.factor)?)?;
        }
        Ok((indices, weights))
    }
}

impl ExpertGroups {
    /// `scores`, `[t, experts]`, with those of the groups that are not chosen from below all
    /// others.
    fn mask(self, scores: &Array) -> Result<Array> {
        let [t, experts] = scores.dims()?;
        let size = experts / self.count;
        let grouped = ops::reshape(scores, &[t, self.count, size])?;
        let first = size - self.by.experts();
        let best = ops::slice_axis(&ops::sort(&grouped, -1)?, -1, first, size)?;
        let of_group = ops::sum(&best, -1, false)?;
        // The rank of each group, upwards.
        let order = ops::argsort(&of_group, -1)?;
        let rank = ops::argsort(&order, -1)?;
        let rank = ops::astype(&rank, Dtype::I32)?;
        let first = Array::from_i32(&[self.count - self.kept], &[])?;
        let is_kept = ops::expand_dims(&ops::greater_equal(&rank, &first)?, -1)?;
        let lowest = Array::scalar(f32::NEG_INFINITY, Dtype::F32)?;
        ops::reshape(&ops::where_(&is_kept, &grouped, &lowest)?, &[t, experts])
    }
}

/// The experts with the `count` largest values of `choice`, `[t, experts]`, and their `scores`.
fn best(choice: &Array, scores: &Array, count: i32) -> Result<(Indices, Array)> {
    let [_, experts] = choice.dims()?;
    let first = experts - count;
    let order = ops::argpartition(choice, first, -1)?;
    let indices = order.slice_axis(-1, first, experts)?;
    let scores = ops::take_along_axis(scores, &indices, -1)?;
    Ok((indices, scores))
}

/// The two experts with the largest `logits`, `[t, experts]`, and their probabilities among those
/// near them.
fn near(logits: &Array, distance: f32) -> Result<(Indices, Array)> {
    let [_, experts] = logits.dims()?;
    let indices = ops::argsort(logits, -1)?.slice_axis(-1, experts - 2, experts)?;
    let sorted = ops::sort(logits, -1)?;
    // Of those up to the `last` one.
    let share = |last: i32| -> Result<Array> {
        let left = ops::slice_axis(&sorted, -1, 0, last)?;
        let best = ops::slice_axis(&sorted, -1, last - 1, last)?;
        let below = ops::subtract(&best, &left)?;
        let part = ops::divide(&below, &ops::maximum(&ops::abs(&left)?, &best)?)?;
        let is_far = ops::greater(&part, &Array::scalar(distance, Dtype::F32)?)?;
        let lowest = Array::scalar(f32::NEG_INFINITY, Dtype::F32)?;
        let seen = ops::where_(&is_far, &lowest, &ops::negative(&below)?)?;
        let all = ops::sum(&ops::exp(&seen)?, -1, true)?;
        ops::divide(&Array::scalar(1.0, Dtype::F32)?, &all)
    };
    Ok((indices, ops::concatenate(&[&share(experts - 1)?, &share(experts)?], -1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[f32]) -> Array {
        Array::from_f32(values, &[1, values.len() as i32]).expect("a row")
    }

    /// The chosen experts with their weights, by number.
    fn chosen(routing: &Routing, logits: &[f32], count: i32) -> Vec<(u32, f32)> {
        let (indices, weights) = routing.route(&row(logits), count, Dtype::F32).expect("it routes");
        let indices = ops::astype(&indices, Dtype::F32).expect("numbers");
        let indices = indices.to_vec_f32().expect("numbers").into_iter().map(|i| i as u32);
        let mut found: Vec<_> = indices.zip(weights.to_vec_f32().expect("weights")).collect();
        found.sort_by_key(|(expert, _)| *expert);
        found
    }

    fn sigmoid(x: f32) -> f32 {
        1.0 / (1.0 + (-x).exp())
    }

    #[test]
    fn a_correction_chooses_and_does_not_weigh() {
        let correction = Array::from_f32(&[0.0, 0.0, 0.9, 0.0], &[4]).expect("four experts");
        let routing = Routing::Scored(ScoredRouting {
            score: Score::Sigmoid,
            correction: Some(correction),
            groups: None,
            normaliser: None,
            factor: 2.0,
        });
        let found = chosen(&routing, &[1.0, -1.0, -2.0, 0.5], 2);
        assert_eq!(found.iter().map(|(expert, _)| *expert).collect::<Vec<_>>(), [0, 2]);
        assert!((found[0].1 - 2.0 * sigmoid(1.0)).abs() < 1e-6, "{found:?}");
        assert!((found[1].1 - 2.0 * sigmoid(-2.0)).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn an_expert_has_a_scale_behind_its_share() {
        let scales = Array::from_f32(&[1.0, 3.0, 1.0, 5.0], &[4]).expect("four experts");
        let routing = Routing::ScaledLogits(scales);
        let found = chosen(&routing, &[0.0, 2.0, -1.0, 1.0], 2);
        assert_eq!(found.iter().map(|(expert, _)| *expert).collect::<Vec<_>>(), [1, 3]);
        assert!((found[0].1 - 3.0 * sigmoid(1.0)).abs() < 1e-6, "{found:?}");
        assert!((found[1].1 - 5.0 * sigmoid(-1.0)).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn an_expert_of_a_kept_group_is_chosen_even_below_0() {
        // The second group has the best two together; its third best is negative once corrected.
        let correction = Array::from_f32(&[0.0, 0.0, 0.0, 0.0, 0.0, -3.0], &[6]).expect("six");
        let routing = Routing::Scored(ScoredRouting {
            score: Score::Sigmoid,
            correction: Some(correction),
            groups: Some(ExpertGroups { count: 2, kept: 1, by: GroupScore::BestTwo }),
            normaliser: Some(1e-20),
            factor: 1.0,
        });
        let found = chosen(&routing, &[2.0, -3.0, -3.0, 1.0, 1.5, 0.0], 3);
        assert_eq!(found.iter().map(|(expert, _)| *expert).collect::<Vec<_>>(), [3, 4, 5]);
        let sum: f32 = found.iter().map(|(_, weight)| weight).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn an_expert_shares_with_those_near_it_that_are_not_chosen() {
        let routing = Routing::Near { distance: 0.2 };
        let found = chosen(&routing, &[1.9, 0.5, 2.0, 1.7], 2);
        assert_eq!(found.iter().map(|(expert, _)| *expert).collect::<Vec<_>>(), [0, 2]);
        let share = |best: f32, all: &[f32]| {
            1.0 / all.iter().map(|logit| (logit - best).exp()).sum::<f32>()
        };
        assert!((found[1].1 - share(2.0, &[2.0, 1.9, 1.7])).abs() < 1e-6, "{found:?}");
        assert!((found[0].1 - share(1.9, &[1.9, 1.7])).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn a_group_may_be_as_good_as_its_best_expert() {
        let groups = |by| {
            Routing::Scored(ScoredRouting {
                score: Score::Sigmoid,
                correction: None,
                groups: Some(ExpertGroups { count: 2, kept: 1, by }),
                normaliser: None,
                factor: 1.0,
            })
        };
        let logits = [3.0, -4.0, 1.0, 1.5];
        let experts = |by| chosen(&groups(by), &logits, 1)[0].0;
        assert_eq!([experts(GroupScore::Best), experts(GroupScore::BestTwo)], [0, 3]);
    }
}
