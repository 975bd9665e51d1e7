//! From the states of tokens to the vector of each text.

use std::ops::Range;

use inference_core::Pooling;
use mlx_ffi::cpu::Run;
use mlx_ffi::{Array, Dtype, Indices, Result, ops};

use crate::layers::{Group, Texts};

/// The positions that count for the vector of each text.
pub(super) struct Pooled<'a> {
    pub spans: Vec<Range<i32>>,
    /// The layout of the texts, where they are pooled by groups and not one after the other.
    pub groups: Option<&'a Texts>,
}

/// `states`, `[1, l, size]`, of texts, pooled: `[n, size]` F32.
pub(super) fn pooled(states: &Array, texts: &Pooled<'_>, pooling: Pooling) -> Result<Array> {
    let Pooled { spans, groups } = texts;
    match pooling {
        Pooling::Cls => return of_places(states, spans.iter().map(|span| span.start)),
        Pooling::Last => return of_places(states, spans.iter().map(|span| span.end - 1)),
        _ => {}
    }
    let vectors = match groups {
        None => spans.iter().map(|span| of_text(states, span, pooling)).collect::<Result<Vec<_>>>(),
        Some(texts) => {
            let mut rest = &spans[..];
            let of_group = |group: Group<'_>| {
                let (own, others) = rest.split_at(group.lengths.len());
                rest = others;
                of_group(states, &group, own, pooling)
            };
            texts.groups().map(of_group).collect()
        }
    };
    ops::concatenate(&vectors?.iter().collect::<Vec<_>>(), 0)
}

/// The states at one place of each text: `[n, size]` F32.
fn of_places(states: &Array, places: impl Iterator<Item = i32>) -> Result<Array> {
    let [_, _, size] = states.dims()?;
    let places: Vec<u32> = places.map(|place| place as u32).collect();
    let count = places.len() as i32;
    let taken = ops::take(states, &Indices::from_u32(&places, &[count])?, 1)?;
    ops::astype(&ops::reshape(&taken, &[count, size])?, Dtype::F32)
}

/// The states of a text at `span`: `[1, size]` F32.
fn of_text(states: &Array, span: &Range<i32>, pooling: Pooling) -> Result<Array> {
    let length = span.end - span.start;
    let states = ops::astype(&ops::slice_axis(states, 1, span.start, span.end)?, Dtype::F32)?;
    let (weights, whole) = match pooling {
        Pooling::Max => return ops::max(&states, 1, false),
        Pooling::WeightedMean => {
            let places: Vec<f32> = (1..=length).map(|place| place as f32).collect();
            (Some(Array::from_f32(&places, &[1, length, 1])?), places.iter().sum())
        }
        Pooling::MeanSqrt => (None, (length as f32).sqrt()),
        _ => (None, length as f32),
    };
    let states = weights.map_or_else(|| states.share(), |w| ops::multiply(&states, &w))?;
    ops::divide(&ops::sum(&states, 1, false)?, &Array::scalar(whole, Dtype::F32)?)
}

/// The states of a group's texts at `spans`: `[texts, size]` F32.
fn of_group(
    states: &Array,
    group: &Group<'_>,
    spans: &[Range<i32>],
    pooling: Pooling,
) -> Result<Array> {
    let [_, _, size] = states.dims()?;
    let Run { first, count, length } = group.run;
    let states = ops::slice_axis(states, 1, first, group.end())?;
    let states = ops::astype(&ops::reshape(&states, &[count, length, size])?, Dtype::F32)?;
    let weight = |place: i32, count: i32| match pooling {
        Pooling::Max => 0.0,
        Pooling::WeightedMean => 2.0 * place as f32 / (count as f32 * (count + 1) as f32),
        Pooling::MeanSqrt => (count as f32).sqrt().recip(),
        _ => (count as f32).recip(),
    };
    let other = if pooling == Pooling::Max { f32::NEG_INFINITY } else { 0.0 };
    let mut weights = vec![other; (count * length) as usize];
    for span in spans {
        for (at, place) in span.clone().zip(1..) {
            weights[(at - first) as usize] = weight(place, span.end - span.start);
        }
    }
    let weights = Array::from_f32(&weights, &[count, length, 1])?;
    match pooling {
        Pooling::Max => ops::max(&ops::add(&states, &weights)?, 1, false),
        _ => ops::sum(&ops::multiply(&states, &weights)?, 1, false),
    }
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Device, use_device};

    use super::*;
    use crate::layers::Padding;

    #[test]
    fn each_pooling_sees_the_tokens_of_its_text_alone() {
        use_device(Device::Cpu).expect("a CPU");
        let found = |states: &[f32], texts: Pooled<'_>, pooling| {
            let states = Array::from_f32(states, &[1, states.len() as i32, 1]).expect("states");
            let pooled = pooled(&states, &texts, pooling).expect("vectors");
            assert_eq!(pooled.shape(), [2, 1]);
            pooled.to_vec_f32().expect("values")
        };
        let padded = Texts::padded(vec![3, 2], Padding { group: 9, multiple: 4 });
        assert_eq!(padded.row(), 8);
        for (pooling, expected) in [
            (Pooling::Cls, [1.0, 3.0]),
            (Pooling::Last, [5.0, -1.0]),
            (Pooling::Max, [5.0, 3.0]),
            (Pooling::Mean, [8.0 / 3.0, 1.0]),
            (Pooling::MeanSqrt, [8.0 / 3f32.sqrt(), 2.0 / 2f32.sqrt()]),
            (Pooling::WeightedMean, [20.0 / 6.0, 1.0 / 3.0]),
        ] {
            let alone = Pooled { spans: vec![0..3, 3..5], groups: None };
            let one_by_one = found(&[1.0, 2.0, 5.0, 3.0, -1.0], alone, pooling);
            assert_eq!(one_by_one, expected, "{pooling:?}");
            let groups = Pooled { spans: padded.spans().collect(), groups: Some(&padded) };
            let states = [1.0, 2.0, 5.0, 99.0, 3.0, -1.0, 99.0, 99.0];
            let at_once = found(&states, groups, pooling);
            let mut both = at_once.iter().zip(&expected);
            assert!(both.all(|(a, b)| (a - b).abs() < 1e-6), "{pooling:?}: {at_once:?}");
        }
    }
}
