//! Linear recurrences, whose positions are joined in rounds.

use mlx_ffi::{Array, Result, ops};

/// Positions that are joined together.
const CHUNK: i32 = 64;

/// `S ← left · S + added` for each position, `[b, l, width]`, from `before`, `[b, 1, width]`, on:
/// the states after all positions, `[b, l, width]`. All are F32.
///
/// # Errors
/// Those of MLX.
pub(crate) fn linear_recurrence(left: &Array, added: &Array, before: &Array) -> Result<Array> {
    let [_, l, _] = added.dims()?;
    let left = ops::broadcast_to(left, added.shape())?;
    let mut before = before.share()?;
    let mut all = Vec::new();
    for first in (0..l).step_by(CHUNK as usize) {
        let end = l.min(first + CHUNK);
        let part = |of: &Array| ops::slice_axis(of, 1, first, end);
        let states = states(part(&left)?, part(added)?, &before)?;
        before = ops::slice_axis(&states, 1, end - first - 1, end - first)?;
        all.push(states);
    }
    ops::concatenate(&all.iter().collect::<Vec<_>>(), 1)
}

/// The states after each of q positions, `[b, q, …]`, given the one before them, `[b, 1, …]`.
/// `left` is what each position leaves of a state, and `added` what it adds. Each round joins
/// twice as many positions (arXiv 2312.00752, section 3.3.2).
pub(super) fn states(mut left: Array, mut added: Array, before: &Array) -> Result<Array> {
    let q = left.shape()[1];
    let mut joined = 1;
    while joined < q {
        let part = |of: &Array, first, end| ops::slice_axis(of, 1, first, end);
        let later = part(&left, joined, q)?;
        let more = ops::multiply(&later, &part(&added, 0, q - joined)?)?;
        let more = ops::add(&part(&added, joined, q)?, &more)?;
        let less = ops::multiply(&later, &part(&left, 0, q - joined)?)?;
        added = ops::concatenate(&[&part(&added, 0, joined)?, &more], 1)?;
        left = ops::concatenate(&[&part(&left, 0, joined)?, &less], 1)?;
        joined *= 2;
    }
    ops::add(&added, &ops::multiply(&left, before)?)
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Device, use_device};

    use super::*;

    #[test]
    fn joined_positions_are_the_recurrence_one_by_one() {
        use_device(Device::Cpu).unwrap();
        let noise = |seed: usize, count: usize| -> Vec<f32> {
            let number = |index: usize| ((index + seed) as f32 * 12.9898).sin() * 43.758;
            (0..count).map(|index| number(index).fract().abs()).collect()
        };
        let width = 3_usize;
        for l in [1, 2, 63, 64, 65, 200_usize] {
            let (left, added) = (noise(1, l * width), noise(2, l * width));
            let before = noise(3, width);
            let mut state = before.clone();
            let mut expected = Vec::new();
            for at in 0..l {
                for (channel, state) in state.iter_mut().enumerate() {
                    let index = at * width + channel;
                    *state = left[index] * *state + added[index];
                    expected.push(*state);
                }
            }
            let array =
                |of: &[f32], l: usize| Array::from_f32(of, &[1, l as i32, width as i32]).unwrap();
            let found =
                linear_recurrence(&array(&left, l), &array(&added, l), &array(&before, 1)).unwrap();
            for (found, expected) in found.to_vec_f32().unwrap().iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-4 * expected.abs().max(1.0), "{l}");
            }
        }
    }
}
