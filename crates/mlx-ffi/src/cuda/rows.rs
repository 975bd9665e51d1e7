//! What stands between the products of a layer.

use super::constants::{MOST_COLUMNS, THREADS, code};
use super::kernel::{Constant, Launch, Source};
use super::launch::{first, launch, scalar};
use crate::{Activation, Array, Dtype, Error, Result};

const GATE: Source = Source {
    name: c"gate",
    inputs: &[c"x"],
    outputs: &[c"out"],
    body: include_str!("gate.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("common.cu")),
    takes_strides: false,
    written: &[],
};
const RESIDUAL: Source = Source {
    name: c"residual",
    inputs: &[c"x", c"y", c"out_norm", c"norm", c"epsilon"],
    outputs: &[c"h", c"normed"],
    body: include_str!("residual.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("common.cu")),
    takes_strides: false,
    written: &[],
};

/// The most values of an operand: each thread takes eight, and threads are counted in 32 bits.
const MOST_VALUES: usize = 1 << 31;

/// Whether [`gated`] takes `x`.
pub fn takes_gate(x: &Array) -> bool {
    let fits = (1..=MOST_VALUES).contains(&x.size());
    x.dtype().is_half() && fits && x.shape().last().is_some_and(|columns| columns % 16 == 0)
}

/// The first half of the last dimension of `x`, activated, times the second half.
///
/// # Errors
/// What [`takes_gate`] does not take; a device without CUDA.
pub fn gated(gate: Activation, x: &Array) -> Result<Array> {
    if !takes_gate(x) {
        return Err(Error::new(format!("no gate for {x:?}")));
    }
    let mut shape = x.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last /= 2;
    }
    let dtype = x.dtype();
    let constants = [(c"T", Constant::Type(dtype)), (c"GATE", Constant::Int(code(gate)))];
    let threads = (x.size() / 16) as i32;
    let grid = [(threads + THREADS - 1) / THREADS * THREADS, 1, 1];
    let outputs: [(&[i32], Dtype); 1] = [(&shape, dtype)];
    let block = [THREADS, 1, 1];
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    first(launch(&GATE, &[x], &all)?)
}

/// Whether [`residual`] takes this.
pub fn takes_residual(
    x: &Array,
    y: &Array,
    out_norm: Option<&Array>,
    norm: Option<&Array>,
) -> bool {
    let dtype = x.dtype();
    let columns = x.shape().last().copied().unwrap_or(0);
    let mut norms = [out_norm, norm].into_iter().flatten();
    let norms_fit = norms.all(|norm| norm.dtype() == dtype && norm.shape() == [columns]);
    let sizes_fit = columns % 8 == 0
        && (1..=MOST_COLUMNS).contains(&columns)
        && (1..=MOST_VALUES).contains(&x.size());
    dtype.is_half() && y.dtype() == dtype && y.shape() == x.shape() && norms_fit && sizes_fit
}

/// `x + y`, where y is normed first with `out_norm`, and that normed with `norm`: root-mean-square
/// norms over the last dimension, weights `[columns]`, one epsilon. Without `norm` only the first.
///
/// # Errors
/// What [`takes_residual`] does not take; a device without CUDA.
pub fn residual(
    x: &Array,
    y: &Array,
    out_norm: Option<&Array>,
    norm: Option<&Array>,
    eps: f32,
) -> Result<(Array, Option<Array>)> {
    if !takes_residual(x, y, out_norm, norm) {
        return Err(Error::new(format!("no residual of {x:?} and {y:?}")));
    }
    let dtype = x.dtype();
    let constants = [
        (c"T", Constant::Type(dtype)),
        (c"HAS_OUT_NORM", Constant::Bool(out_norm.is_some())),
        (c"HAS_NORM", Constant::Bool(norm.is_some())),
    ];
    let second: &[i32] = if norm.is_some() { x.shape() } else { &[1] };
    let outputs = [(x.shape(), dtype), (second, dtype)];
    let (grid, block) = ([THREADS * x.rows(), 1, 1], [THREADS, 1, 1]);
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    // What is not there is not looked at.
    let inputs = [x, y, out_norm.unwrap_or(x), norm.unwrap_or(x), &scalar(eps)?];
    let found = launch(&RESIDUAL, &inputs, &all)?;
    let [h, normed] = <[Array; 2]>::try_from(found)
        .map_err(|found| Error::new(format!("{} results of a residual", found.len())))?;
    Ok((h, norm.map(|_| normed)))
}
