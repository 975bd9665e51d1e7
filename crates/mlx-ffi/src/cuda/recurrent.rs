//! What layers with a recurrent state compute.

use super::constants::{THREADS, WARPS};
use super::kernel::{Constant, Launch, Source};
use super::launch::launch;
use crate::cpu::DeltaRule;
use crate::{Array, Dtype, Error, Result};

/// Rows of a head's state that a warp holds.
const SHARE: i32 = 4;
/// The most values of a convolution's result: each thread takes eight, and threads are counted in 32 bits.
const MOST_VALUES: i64 = 1 << 31;
/// The most taps of a convolution.
const MOST_TAPS: i32 = 16;
/// The most rows of a batch: the third dimension of a grid.
const MOST_ROWS: i32 = 65_535;

const CONVOLUTION: Source = Source {
    name: c"convolution",
    inputs: &[c"x", c"state", c"weight", c"lengths"],
    outputs: &[c"out", c"next"],
    body: include_str!("convolution.cu"),
    header: include_str!("chained.cu"),
    takes_strides: false,
    written: &[],
};
const DELTA: Source = Source {
    name: c"delta",
    inputs: &[c"mixed", c"a", c"b", c"a_log", c"dt_bias", c"state", c"lengths"],
    outputs: &[c"out", c"next"],
    body: include_str!("delta.cu"),
    header: include_str!("chained.cu"),
    takes_strides: false,
    written: &[],
};

/// Whether [`convolution`] takes this.
pub fn takes_convolution(x: &Array, state: &Array, weight: &Array, lengths: &[i32]) -> bool {
    let (Ok([b, l, channels]), Ok([taps, _])) = (x.dims(), weight.dims()) else { return false };
    let dtype = x.dtype();
    let types_fit = dtype.is_half() && state.dtype() == dtype && weight.dtype() == dtype;
    let shapes_fit = weight.shape() == [taps, channels]
        && (2..=MOST_TAPS).contains(&taps)
        && state.shape() == [b, taps - 1, channels]
        && (lengths.is_empty() || lengths.len() == b as usize);
    let values = i64::from(b) * (i64::from(l) + i64::from(taps)) * i64::from(channels);
    let sizes_fit = channels % 8 == 0 && (1..=MOST_VALUES).contains(&values) && l > 0;
    types_fit && shapes_fit && sizes_fit
}

/// A short causal convolution of each channel by itself, with a SiLU behind it: `x` of `[b, l, channels]`
/// after `state`, `[b, taps - 1, channels]`, by `weight`, `[taps, channels]`, to `[b, l, channels]`, and the
/// state afterwards. Of each row so many positions count as `lengths` says; empty: all.
///
/// # Errors
/// What [`takes_convolution`] does not take; a device without CUDA.
pub fn convolution(
    x: &Array,
    state: &Array,
    weight: &Array,
    lengths: &[i32],
) -> Result<[Array; 2]> {
    if !takes_convolution(x, state, weight, lengths) {
        return Err(Error::new(format!(
            "no convolution of {x:?} after {state:?} by {weight:?} with lengths {lengths:?}"
        )));
    }
    let ([b, l, channels], [taps, _]) = (x.dims()?, weight.dims()?);
    let constants = [
        (c"T", Constant::Type(x.dtype())),
        (c"TAPS", Constant::Int(taps)),
        (c"HAS_LENGTHS", Constant::Bool(!lengths.is_empty())),
    ];
    let threads = (i64::from(b) * i64::from(l + taps - 1) * i64::from(channels) / 8) as i32;
    let (grid, block) = ([(threads + THREADS - 1) / THREADS * THREADS, 1, 1], [THREADS, 1, 1]);
    let outputs = [(x.shape(), x.dtype()), (state.shape(), x.dtype())];
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    pair(launch(&CONVOLUTION, &[x, state, weight, &counts(lengths)?], &all)?)
}

/// Whether [`delta`] takes this.
pub fn takes_delta(rule: &DeltaRule<'_>) -> bool {
    let DeltaRule { mixed, a, b, a_log, dt_bias, k_heads, lengths, state } = *rule;
    let (Ok([rows, l, columns]), Ok([_, v_heads, dv, dk])) = (mixed.dims(), state.dims()) else {
        return false;
    };
    let dtype = mixed.dtype();
    let types_fit = dtype.is_half()
        && [a, b].iter().all(|array| array.dtype() == dtype)
        && [a_log, dt_bias, state].iter().all(|array| array.dtype() == Dtype::F32);
    let heads_fit = k_heads > 0 && v_heads > 0 && v_heads % k_heads == 0;
    let keys = 2 * i64::from(k_heads) * i64::from(dk);
    let shapes_fit = i64::from(columns) == keys + i64::from(v_heads) * i64::from(dv)
        && state.shape() == [rows, v_heads, dv, dk]
        && [a, b].iter().all(|array| array.shape() == [rows, l, v_heads])
        && [a_log, dt_bias].iter().all(|array| array.shape() == [v_heads])
        && (lengths.is_empty() || lengths.len() == rows as usize);
    let sizes_fit = matches!(dk, 32 | 64 | 96 | 128 | 256)
        && dv > 0
        && dv % SHARE == 0
        && l > 0
        && (1..=MOST_ROWS).contains(&rows)
        && v_heads <= MOST_ROWS;
    types_fit && heads_fit && shapes_fit && sizes_fit
}

/// The gated delta rule: `[b, l, v_heads · dv]`, and the state afterwards.
///
/// # Errors
/// What [`takes_delta`] does not take; a device without CUDA.
pub fn delta(rule: &DeltaRule<'_>) -> Result<[Array; 2]> {
    if !takes_delta(rule) {
        return Err(Error::new(format!("no delta rule for {rule:?}")));
    }
    let DeltaRule { mixed, a, b, a_log, dt_bias, k_heads, lengths, state } = *rule;
    let ([rows, l, _], [_, v_heads, dv, dk]) = (mixed.dims()?, state.dims()?);
    let dtype = mixed.dtype();
    let constants = [
        (c"T", Constant::Type(dtype)),
        (c"DK", Constant::Int(dk)),
        (c"DV", Constant::Int(dv)),
        (c"K_HEADS", Constant::Int(k_heads)),
        (c"V_HEADS", Constant::Int(v_heads)),
        (c"SHARE", Constant::Int(SHARE)),
        (c"HAS_LENGTHS", Constant::Bool(!lengths.is_empty())),
    ];
    let blocks = (dv + SHARE * WARPS - 1) / (SHARE * WARPS);
    let (grid, block) = ([THREADS * blocks, v_heads, rows], [THREADS, 1, 1]);
    let whole = [rows, l, v_heads * dv];
    let outputs = [(&whole[..], dtype), (state.shape(), Dtype::F32)];
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    let inputs = [mixed, a, b, a_log, dt_bias, state, &counts(lengths)?];
    pair(launch(&DELTA, &inputs, &all)?)
}

/// Lengths on the device; a number that nothing reads where there are none.
fn counts(lengths: &[i32]) -> Result<Array> {
    match lengths {
        [] => Array::from_i32(&[0], &[1]),
        lengths => Array::from_i32(lengths, &[lengths.len() as i32]),
    }
}

fn pair(found: Vec<Array>) -> Result<[Array; 2]> {
    <[Array; 2]>::try_from(found)
        .map_err(|found| Error::new(format!("{} results, expected two", found.len())))
}
