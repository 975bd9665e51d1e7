//! From scores to weights, in lanes that are counted from the first score.

use crate::functions::{exp, tanh};

/// Lanes of a sum.
const LANES: usize = 16;

/// Scale and softcap of scores, applied before the softmax, and the sink that takes part in it.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) scale: f32,
    pub(crate) softcap: Option<f32>,
    pub(crate) sink: Option<f32>,
}

/// Replaces scores by `exp(score − largest)` and returns the sum of these, the sink's included.
#[inline(always)]
pub(crate) fn weigh<const FMA: bool>(scores: &mut [f32], shape: Shape) -> f32 {
    let Shape { scale, softcap, sink } = shape;
    match softcap {
        None => scores.iter_mut().for_each(|score| *score *= scale),
        Some(cap) => {
            for score in scores.iter_mut() {
                *score = cap * tanh::<FMA>(*score * scale / cap);
            }
        }
    }
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (blocks, rest) = scores.as_chunks::<LANES>();
    for block in blocks {
        for (lane, &score) in lanes.iter_mut().zip(block) {
            *lane = if score > *lane { score } else { *lane };
        }
    }
    let mut largest = sink.unwrap_or(f32::NEG_INFINITY);
    for &score in lanes.iter().chain(rest) {
        largest = if score > largest { score } else { largest };
    }
    let mut sums = [0.0; LANES];
    let (blocks, rest) = scores.as_chunks_mut::<LANES>();
    for block in blocks {
        for (sum, score) in sums.iter_mut().zip(block) {
            *score = exp::<FMA>(*score - largest);
            *sum += *score;
        }
    }
    for (sum, score) in sums.iter_mut().zip(rest) {
        *score = exp::<FMA>(*score - largest);
        *sum += *score;
    }
    for width in [8, 4, 2, 1] {
        for i in 0..width {
            sums[i] += sums[i + width];
        }
    }
    sums[0] + sink.map_or(0.0, |sink| exp::<FMA>(sink - largest))
}
