//! The selective scan of Mamba 1: each value of a channel's state decays in its own way.

use mlx_ffi::{Array, Dtype, Result, ops};

use super::activation::softplus;
use super::columns::Columns;
use super::linear_recurrence::states;
use super::recurrent::counting;

/// Positions that are computed together: their states are held at once.
const CHUNK: i32 = 32;

/// The operands of [`channel_scan`].
#[derive(Debug)]
pub(crate) struct ChannelScan<'a> {
    /// `[b, l, channels]`.
    pub x: &'a Array,
    /// The sources of steps: `[b, l, channels]`.
    pub dt: &'a Array,
    /// The values written into states: `state_dim` columns of `[b, l, …]`.
    pub b: Columns,
    /// The values that read them: as many.
    pub c: Columns,
    /// `[channels, state_dim]` F32.
    pub a_log: &'a Array,
    /// `[channels]` F32.
    pub dt_bias: &'a Array,
    /// The part of x that passes the state by: `[channels]` F32.
    pub d: &'a Array,
    /// Positions of each row that count; empty: all.
    pub lengths: &'a [i32],
    /// `[b, 1, channels, state_dim]` F32.
    pub state: &'a Array,
}

/// For each position and channel `step = softplus(dt + dt_bias)`, then
/// `S ← exp(-exp(a_log) · step) ⊙ S + step · x · b` and `out = S c + d · x` (arXiv 2312.00752):
/// `[b, l, channels]` in the type of x, and the state afterwards. MLX's operations compute it in
/// F32.
///
/// # Errors
/// Those of MLX.
pub(crate) fn channel_scan(scan: &ChannelScan<'_>) -> Result<[Array; 2]> {
    let f32 = |x: &Array| ops::astype(x, Dtype::F32);
    let [rows, l, channels] = scan.x.dims()?;
    let [_, _, _, n] = scan.state.dims()?;
    let x = f32(scan.x)?;
    let step = softplus(&ops::add(&f32(scan.dt)?, scan.dt_bias)?)?;
    // A step of 0 leaves the state as it is.
    let step = ops::multiply(&step, &counting(rows, l, scan.lengths)?)?;
    let brought = ops::multiply(&step, &x)?;
    let (b, c) = (f32(&scan.b.array()?)?, f32(&scan.c.array()?)?);
    let rate = ops::negative(&ops::exp(scan.a_log)?)?;
    let mut state = ops::reshape(scan.state, &[rows, 1, channels, n])?;
    let mut out = Vec::new();
    for first in (0..l).step_by(CHUNK as usize) {
        let q = CHUNK.min(l - first);
        let part = |of: &Array, shape: [i32; 2]| {
            let part = ops::slice_axis(of, 1, first, first + q)?;
            ops::reshape(&part, &[rows, q, shape[0], shape[1]])
        };
        let left = ops::exp(&ops::multiply(&part(&step, [channels, 1])?, &rate)?)?;
        let added = ops::multiply(&part(&brought, [channels, 1])?, &part(&b, [1, n])?)?;
        let states = states(left, added, &state)?;
        out.push(ops::sum(&ops::multiply(&states, &part(&c, [1, n])?)?, -1, false)?);
        state = ops::slice_axis(&states, 1, q - 1, q)?;
    }
    // A slice would hold the states of all positions for as long as the row lives.
    let state = ops::concatenate(&[&state, &ops::slice_axis(&state, 0, 0, 0)?], 0)?;
    let out = ops::concatenate(&out.iter().collect::<Vec<_>>(), 1)?;
    let out = ops::add(&out, &ops::multiply(&x, scan.d)?)?;
    Ok([ops::astype(&out, scan.x.dtype())?, state])
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Device, use_device};

    use super::*;

    /// Numbers between -1 and 1.
    fn noise(seed: usize, count: usize) -> Vec<f32> {
        let number = |index: usize| ((index + seed) as f32 * 12.9898).sin() * 43.758;
        (0..count).map(|index| number(index).fract()).collect()
    }

    /// The recurrence position by position: outputs, then the state.
    fn one_by_one(l: usize, counts: usize, [x, dt, b, c, a_log, bias, d]: [&[f32]; 7]) -> Vec<f32> {
        let (channels, n) = (bias.len(), a_log.len() / bias.len());
        let mut state = noise(9, channels * n);
        let mut out = Vec::new();
        for at in 0..l {
            for channel in 0..channels {
                let value = x[at * channels + channel];
                let step = (dt[at * channels + channel] + bias[channel]).exp().ln_1p();
                let mut sum = d[channel] * value;
                for column in 0..n {
                    let held = &mut state[channel * n + column];
                    if at < counts {
                        let rate = -a_log[channel * n + column].exp();
                        *held = (rate * step).exp() * *held + step * value * b[at * n + column];
                    }
                    sum += *held * c[at * n + column];
                }
                out.push(sum);
            }
        }
        out.extend(state);
        out
    }

    #[test]
    fn chunks_are_the_recurrence_position_by_position() {
        use_device(Device::Cpu).unwrap();
        let (channels, n) = (6_i32, 5_i32);
        for (l, counts) in [(1, 1), (3, 3), (33, 33), (70, 70), (70, 41)] {
            let size = |columns: i32| (l * columns) as usize;
            let (x, dt) = (noise(1, size(channels)), noise(2, size(channels)));
            let (b, c) = (noise(3, size(n)), noise(4, size(n)));
            let a_log = noise(5, (channels * n) as usize);
            let (bias, d) = (noise(6, channels as usize), noise(7, channels as usize));
            let array = |of: &[f32], shape: &[i32]| Array::from_f32(of, shape).unwrap();
            let columns = |of: &[f32]| Columns::all(array(of, &[1, l, n]));
            let lengths = [counts];
            let [out, state] = channel_scan(&ChannelScan {
                x: &array(&x, &[1, l, channels]),
                dt: &array(&dt, &[1, l, channels]),
                b: columns(&b),
                c: columns(&c),
                a_log: &array(&a_log, &[channels, n]),
                dt_bias: &array(&bias, &[channels]),
                d: &array(&d, &[channels]),
                lengths: if counts < l { &lengths } else { &[] },
                state: &array(&noise(9, (channels * n) as usize), &[1, 1, channels, n]),
            })
            .unwrap();
            let found = [out.to_vec_f32().unwrap(), state.to_vec_f32().unwrap()].concat();
            let of = [&x, &dt, &b, &c, &a_log, &bias, &d].map(Vec::as_slice);
            let expected = one_by_one(l as usize, counts as usize, of);
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-4, "{l}, {counts}: {found}, {expected}");
            }
        }
    }
}
