//! Filters: each leaves the log probabilities of some ids, and makes the others impossible.

use mlx_ffi::{Array, Dtype, Result, ops, random};

use super::normalise;

/// Drops the ids where `dropped` is true.
fn drop_where(dropped: &Array, logprobs: &Array) -> Result<Array> {
    ops::where_(dropped, &Array::scalar(f32::NEG_INFINITY, Dtype::F32)?, logprobs)
}

/// Keeps the most likely tokens until their probabilities reach `top_p`, the one that crosses it
/// included. They add up to `total`, where it is given.
pub(super) fn filter_top_p(logprobs: &Array, top_p: f32, total: Option<f32>) -> Result<Array> {
    let sorted = ops::sort(logprobs, -1)?;
    let probabilities = ops::exp(&sorted)?;
    let above = ops::cumsum(&probabilities, -1, ops::Cumulative::ReverseExclusive)?;
    let total = match total {
        None => ops::sum(&probabilities, -1, true)?,
        Some(total) => Array::scalar(total, Dtype::F32)?,
    };
    let bound = ops::multiply(&total, &Array::scalar(top_p, Dtype::F32)?)?;
    let dropped = ops::greater_equal(&above, &bound)?;
    let infinity = Array::scalar(f32::INFINITY, Dtype::F32)?;
    let threshold = ops::min(&ops::where_(&dropped, &infinity, &sorted)?, -1, true)?;
    drop_where(&ops::less(logprobs, &threshold)?, logprobs)
}

/// Keeps the tokens at least `min_p` times as likely as the most likely one.
pub(super) fn filter_min_p(logprobs: &Array, min_p: f32) -> Result<Array> {
    let best = ops::max(logprobs, -1, true)?;
    let threshold = ops::add(&best, &Array::scalar(min_p.ln(), Dtype::F32)?)?;
    drop_where(&ops::less(logprobs, &threshold)?, logprobs)
}

/// With the given probability, drops every token above the threshold but the least likely one.
pub(super) fn filter_xtc(
    logprobs: &Array,
    xtc: inference_core::Xtc,
    droppable: &Array,
    key: &Array,
) -> Result<Array> {
    let probabilities = ops::softmax(logprobs, -1, false)?;
    let threshold = Array::scalar(xtc.threshold, Dtype::F32)?;
    let infinity = Array::scalar(f32::INFINITY, Dtype::F32)?;
    let top = ops::greater(&probabilities, &threshold)?;
    let least = ops::min(&ops::where_(&top, &probabilities, &infinity)?, -1, true)?;
    let dropped = ops::logical_and(&ops::greater(&probabilities, &least)?, droppable)?;
    let chance = random::uniform(&[1, 1], key)?;
    let skipped = ops::greater(&chance, &Array::scalar(xtc.probability, Dtype::F32)?)?;
    ops::where_(&skipped, logprobs, &drop_where(&dropped, logprobs)?)
}

/// Keeps the `top_k` most likely tokens; `top_k` is below the vocabulary's size.
pub(super) fn filter_top_k(logprobs: &Array, top_k: i32) -> Result<Array> {
    let order = ops::argpartition(&ops::negative(logprobs)?, top_k - 1, -1)?;
    let rest = order.slice_axis(-1, top_k, logprobs.shape()[1])?;
    let lowest = Array::from_f32(&[f32::NEG_INFINITY], &[1, 1])?;
    ops::put_along_axis(logprobs, &rest, &ops::broadcast_to(&lowest, rest.shape())?, -1)
}

/// Keeps the tokens whose surprise is nearest to the mean surprise, until their probabilities pass
/// `typical_p`, the one that passes it included. As llama.cpp's `typ-p`.
pub(super) fn filter_typical(logprobs: &Array, typical_p: f32) -> Result<Array> {
    let scalar = |value| Array::scalar(value, Dtype::F32);
    let known = normalise(logprobs)?;
    let probabilities = ops::exp(&known)?;
    let possible = ops::greater(&known, &scalar(f32::NEG_INFINITY)?)?;
    // 0 times infinity is no number.
    let finite = ops::where_(&possible, &known, &scalar(0.0)?)?;
    let entropy = ops::negative(&ops::sum(&ops::multiply(&probabilities, &finite)?, -1, true)?)?;
    let distance = ops::abs(&ops::add(&finite, &entropy)?)?;
    let distance = ops::where_(&possible, &distance, &scalar(f32::INFINITY)?)?;
    let order = ops::argsort(&distance, -1)?;
    let sorted = ops::take_along_axis(&probabilities, &order, -1)?;
    let before = ops::subtract(&ops::cumsum(&sorted, -1, ops::Cumulative::Forward)?, &sorted)?;
    let values = ops::take_along_axis(logprobs, &order, -1)?;
    let values = drop_where(&ops::greater(&before, &scalar(typical_p)?)?, &values)?;
    ops::put_along_axis(logprobs, &order, &values, -1)
}

/// Keeps the tokens that are at most `n` standard deviations of all possible ones below the
/// likeliest. As llama.cpp's `top-n-sigma`; log probabilities differ as logits do.
pub(super) fn filter_top_n_sigma(logprobs: &Array, n: f32) -> Result<Array> {
    let scalar = |value| Array::scalar(value, Dtype::F32);
    let zero = scalar(0.0)?;
    let possible = ops::greater(logprobs, &scalar(f32::NEG_INFINITY)?)?;
    let count = ops::sum(&ops::astype(&possible, Dtype::F32)?, -1, true)?;
    let mean_of = |values: &Array| {
        ops::divide(&ops::sum(&ops::where_(&possible, values, &zero)?, -1, true)?, &count)
    };
    let off = ops::subtract(logprobs, &mean_of(logprobs)?)?;
    let deviation = ops::sqrt(&mean_of(&ops::multiply(&off, &off)?)?)?;
    let below = ops::multiply(&deviation, &scalar(n)?)?;
    let threshold = ops::subtract(&ops::max(logprobs, -1, true)?, &below)?;
    drop_where(&ops::less(logprobs, &threshold)?, logprobs)
}
