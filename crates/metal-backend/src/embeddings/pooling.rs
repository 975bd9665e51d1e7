//! From the states of tokens to the vector of each text.

use std::ops::Range;

use inference_core::Pooling;
use mlx_ffi::{Array, Dtype, Indices, Result, ops};

/// `states`, `[1, l, size]`, of texts that lie at `spans`, pooled: `[n, size]` F32.
pub(super) fn pooled(states: &Array, spans: &[Range<i32>], pooling: Pooling) -> Result<Array> {
    let [_, _, size] = states.dims()?;
    let count = spans.len() as i32;
    let of_places = |place: fn(&Range<i32>) -> i32| {
        let places: Vec<u32> = spans.iter().map(|span| place(span) as u32).collect();
        let taken = ops::take(states, &Indices::from_u32(&places, &[count])?, 1)?;
        ops::astype(&ops::reshape(&taken, &[count, size])?, Dtype::F32)
    };
    match pooling {
        Pooling::Cls => return of_places(|span| span.start),
        Pooling::Last => return of_places(|span| span.end - 1),
        _ => {}
    }
    let one = |span: &Range<i32>| -> Result<Array> {
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
    };
    let vectors = spans.iter().map(one).collect::<Result<Vec<_>>>()?;
    ops::concatenate(&vectors.iter().collect::<Vec<_>>(), 0)
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Device, use_device};

    use super::*;

    #[test]
    fn each_pooling_sees_the_tokens_of_its_text_alone() {
        use_device(Device::Cpu).expect("a CPU");
        let states = Array::from_f32(&[1.0, 2.0, 5.0, 3.0, -1.0], &[1, 5, 1]).expect("states");
        let found = |pooling| {
            let pooled = pooled(&states, &[0..3, 3..5], pooling).expect("vectors");
            assert_eq!(pooled.shape(), [2, 1]);
            pooled.to_vec_f32().expect("values")
        };
        assert_eq!(found(Pooling::Cls), [1.0, 3.0]);
        assert_eq!(found(Pooling::Last), [5.0, -1.0]);
        assert_eq!(found(Pooling::Max), [5.0, 3.0]);
        assert_eq!(found(Pooling::Mean), [8.0 / 3.0, 1.0]);
        assert_eq!(found(Pooling::MeanSqrt), [8.0 / 3f32.sqrt(), 2.0 / 2f32.sqrt()]);
        assert_eq!(found(Pooling::WeightedMean), [20.0 / 6.0, 1.0 / 3.0]);
    }
}
