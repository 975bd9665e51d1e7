//! How a router's logits choose and weigh experts.

use std::ffi::CStr;

use super::constants::{LANES, MOST_CHOICES, SORTING, THREADS, WARPS};
use super::kernel::{Constant, Launch, Source};
use super::launch::{launch, numbers};
use crate::{Array, Dtype, Error, Indices, Result};

const ROUTE: Source = Source {
    name: c"route",
    inputs: &[c"logits", c"correction", c"scaling", c"scales"],
    outputs: &[c"indices", c"weights"],
    body: include_str!("route.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("choose.cu")),
    takes_strides: false,
    written: &[],
};

/// The function from a logit to a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// The probability among all experts.
    Softmax,
    /// `1 / (1 + exp(-x))`, of each expert by itself.
    Sigmoid,
}

/// How experts are chosen and weighed.
#[derive(Clone, Copy, Debug)]
pub struct Router<'a> {
    /// The scores that they are weighed by.
    pub score: Score,
    /// Added to scores for the choice alone, `[experts]` F32.
    pub correction: Option<&'a Array>,
    /// The weights of the chosen are divided by their sum and this; `None`: they are not.
    pub normaliser: Option<f32>,
    /// Factor of the weights.
    pub factor: f32,
    /// Experts that a row chooses.
    pub choices: i32,
    /// The groups that only the best of are chosen from, where there are such.
    pub groups: Option<Groups>,
    /// Factors of the experts' weights, `[experts]`, in the type of the logits.
    pub scales: Option<&'a Array>,
}

impl<'a> Router<'a> {
    /// The numbers that weights are scaled with.
    pub(super) fn scaling(&self) -> Result<Array> {
        numbers([self.normaliser.unwrap_or(0.0), self.factor, 0.0, 0.0])
    }

    /// Inputs of kernels that choose by `logits`. A placeholder for a missing one is not read.
    pub(super) fn inputs(&self, logits: &'a Array, scaling: &'a Array) -> [&'a Array; 4] {
        [logits, self.correction.unwrap_or(scaling), scaling, self.scales.unwrap_or(logits)]
    }
}

/// Constants of the choice by logits; `None`: a kernel that does not choose.
pub(super) fn choosing(by: Option<(&Array, &Router<'_>)>) -> [(&'static CStr, Constant); 7] {
    let experts = by.and_then(|(logits, _)| logits.shape().last().copied()).unwrap_or(1);
    let router = by.map(|(_, router)| router);
    let groups = router.and_then(|router| router.groups).unwrap_or(Groups { count: 1, kept: 1 });
    let has = |what: fn(&Router<'_>) -> bool| Constant::Bool(router.is_some_and(what));
    [
        (c"EXPERTS", Constant::Int(experts)),
        (c"BY_SIGMOID", has(|router| router.score == Score::Sigmoid)),
        (c"HAS_CORRECTION", has(|router| router.correction.is_some())),
        (c"NORMALISES", has(|router| router.normaliser.is_some())),
        (c"EXPERT_GROUPS", Constant::Int(groups.count)),
        (c"KEPT", Constant::Int(groups.kept)),
        (c"HAS_SCALES", has(|router| router.scales.is_some())),
    ]
}

/// Groups of neighbouring experts, of two or more each. A group is as good as its two best experts
/// together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// How many there are.
    pub count: i32,
    /// How many are chosen from.
    pub kept: i32,
}

/// Returns true when [`route`] supports these operands.
pub fn takes_route(logits: &Array, router: &Router<'_>) -> bool {
    let Some(&experts) = logits.shape().last() else { return false };
    let correction_fits = router.correction.is_none_or(|correction| {
        correction.shape() == [experts] && correction.dtype() == Dtype::F32
    });
    let scales_fit = router
        .scales
        .is_none_or(|scales| scales.shape() == [experts] && scales.dtype() == logits.dtype());
    let groups_fit = router.groups.is_none_or(|Groups { count, kept }| {
        let size = experts / count.max(1);
        let are_whole = (2..=LANES).contains(&count) && size > 1 && size * count == experts;
        are_whole && (1..=count).contains(&kept) && router.choices <= kept * size
    });
    let sizes_fit = (1..=SORTING).contains(&experts)
        && (1..=experts.min(MOST_CHOICES)).contains(&router.choices)
        && (1..=1 << 24).contains(&logits.rows());
    logits.dtype().is_half() && correction_fits && scales_fit && groups_fit && sizes_fit
}

/// The experts that each row of `logits`, `[…, experts]`, chooses, the best first, and their
/// weights in the type of the logits: both `[t, choices]`.
///
/// # Errors
/// Operands that [`takes_route`] rejects; a device without CUDA.
pub fn route(logits: &Array, router: &Router<'_>) -> Result<(Indices, Array)> {
    if !takes_route(logits, router) {
        return Err(Error::new(format!("no choice of experts by {router:?} for {logits:?}")));
    }
    let choices = router.choices;
    let (of_type, of_count) =
        ((c"T", Constant::Type(logits.dtype())), (c"CHOICES", Constant::Int(choices)));
    let constants = [&[of_type, of_count][..], &choosing(Some((logits, router)))].concat();
    let t = logits.rows();
    let shape = [t, choices];
    let outputs: [(&[i32], Dtype); 2] = [(&shape, Dtype::U32), (&shape, logits.dtype())];
    let (grid, block) = ([(t + WARPS - 1) / WARPS * THREADS, 1, 1], [THREADS, 1, 1]);
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    let scaling = router.scaling()?;
    let inputs = router.inputs(logits, &scaling);
    let found = launch(&ROUTE, &inputs, &all)?;
    let [indices, weights] = <[Array; 2]>::try_from(found)
        .map_err(|found| Error::new(format!("{} results of a choice", found.len())))?;
    Ok((Indices::along(logits, -1, indices)?, weights))
}
