//! Operations between the products of a layer.

use std::ffi::CStr;

use super::constants::{LANES, MOST_COLUMNS, THREADS, WARPS, code};
use super::kernel::{Constant, Launch, Source};
use super::launch::{first, launch, scalar};
use super::several_rows::MOST_PARTS;
use crate::cpu::fits_columns;
use crate::step::Heads as Columns;
use crate::{Activation, Array, Dtype, Error, Result};

/// The most warps of a block that adds a row.
const MOST_WARPS: i32 = 16;

const GATE: Source = Source {
    name: c"gate",
    inputs: &[c"gate", c"up", c"first"],
    outputs: &[c"out"],
    body: include_str!("gate.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("common.cu")),
    takes_strides: false,
    written: &[],
};
const NORM_GATE: Source = Source {
    name: c"norm_gate",
    inputs: &[c"x", c"weight", c"gate"],
    outputs: &[c"out"],
    body: include_str!("norm_gate.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("common.cu")),
    takes_strides: false,
    written: &[],
};
const RESIDUAL: Source = Source {
    name: c"residual",
    inputs: &[c"x", c"y", c"out_norm", c"norm", c"epsilon", c"scale"],
    outputs: &[c"h", c"normed"],
    body: include_str!("residual.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("common.cu")),
    takes_strides: false,
    written: &[],
};
const SUM: Source = Source {
    name: c"sum",
    inputs: &[c"x", c"y"],
    outputs: &[c"out"],
    body: include_str!("sum.cu"),
    header: include_str!("chained.cu"),
    takes_strides: false,
    written: &[],
};
const JOIN: Source = Source {
    name: c"join",
    inputs: &[c"x", c"y"],
    outputs: &[c"out"],
    body: include_str!("join.cu"),
    header: include_str!("chained.cu"),
    takes_strides: false,
    written: &[],
};
const TIMES: Source = Source {
    name: c"times",
    inputs: &[c"x", c"by"],
    outputs: &[c"out"],
    body: include_str!("times.cu"),
    header: include_str!("chained.cu"),
    takes_strides: false,
    written: &[],
};

/// The most values of an operand: each thread takes four or eight, and threads are counted in 32
/// bits.
const MOST_VALUES: usize = 1 << 31;
/// The most columns that a float counts.
const MOST_COUNTED: i32 = 1 << 24;
/// The most groups that are normed at once.
const MOST_GROUPS: usize = 1 << 22;
/// The most values of a group that a warp norms.
const MOST_OF_WARP: i32 = 512;
/// The most values of a group, which threads of a block hold.
const MOST_GROUP: i32 = 1 << 13;

/// Values that a thread reads at once: sixteen bytes.
fn values_at_once(dtype: Dtype) -> i32 {
    16 / dtype.size() as i32
}

/// Returns true when [`gated`] supports `each` columns of `up` for each of `gate`.
pub fn takes_gate(gate: Columns<'_>, up: Columns<'_>, columns: i32, each: i32) -> bool {
    let (gates, ups) = (gate.array.shape(), up.array.shape());
    let ([rows @ .., all_gates], [up_rows @ .., all_ups]) = (gates, ups) else { return false };
    let dtype = gate.array.dtype();
    let types_fit = (dtype.is_half() || dtype == Dtype::F32) && up.array.dtype() == dtype;
    let are_there = each > 0
        && columns > 0
        && columns % each == 0
        && gate.at >= 0
        && up.at >= 0
        && i64::from(gate.at) + i64::from(columns / each) <= i64::from(*all_gates)
        && i64::from(up.at) + i64::from(columns) <= i64::from(*all_ups);
    let read = values_at_once(dtype);
    let gates_align = each > 1 || (gate.at % read == 0 && all_gates % read == 0);
    let ups_align = up.at % read == 0 && all_ups % read == 0;
    let are_aligned = columns % read == 0 && ups_align && gates_align;
    let sizes_fit =
        [gate.array.size(), up.array.size()].iter().all(|size| (1..=MOST_VALUES).contains(size));
    types_fit && rows == up_rows && are_there && are_aligned && sizes_fit
}

/// `columns` columns of `up`, of `[…, columns]`, times the activated ones of `gate`, each of which
/// is for `each` of them.
///
/// # Errors
/// Operands that [`takes_gate`] rejects; a device without CUDA.
pub fn gated(
    activation: Activation,
    gate: Columns<'_>,
    up: Columns<'_>,
    columns: i32,
    each: i32,
) -> Result<Array> {
    open(activation, gate, Some(up), columns, each)
}

/// `columns` columns, activated: `[…, columns]`.
///
/// # Errors
/// Columns that [`takes_gate`] rejects as their own gate; a device without CUDA.
pub fn activated(activation: Activation, x: Columns<'_>, columns: i32) -> Result<Array> {
    open(activation, x, None, columns, 1)
}

fn open(
    activation: Activation,
    gate: Columns<'_>,
    up: Option<Columns<'_>>,
    columns: i32,
    each: i32,
) -> Result<Array> {
    let has_up = up.is_some();
    let up = up.unwrap_or(gate);
    if !takes_gate(gate, up, columns, each) {
        return Err(Error::new(format!("no gate {gate:?} for {columns} columns of {up:?}")));
    }
    let mut shape = up.array.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = columns;
    }
    let dtype = up.array.dtype();
    // Of an array that has something for each layer, all layers take theirs by one kernel.
    let is_apart = gate.at == 0
        && (1..MOST_COUNTED).contains(&up.at)
        && gate.array.shape() != up.array.shape();
    let constants = [
        (c"T", Constant::Type(dtype)),
        (c"GATE", Constant::Int(code(activation))),
        (c"GATE_AT", Constant::Int(gate.at)),
        (c"IS_APART", Constant::Bool(is_apart)),
        (c"UP_AT", Constant::Int(if is_apart { 0 } else { up.at })),
        (c"WIDTH", Constant::Int(columns)),
        (c"EACH", Constant::Int(each)),
        (c"HAS_UP", Constant::Bool(has_up)),
    ];
    let values = i64::from(up.array.rows()) * i64::from(columns);
    let threads = (values / i64::from(values_at_once(dtype))) as i32;
    let grid = [(threads + THREADS - 1) / THREADS * THREADS, 1, 1];
    let outputs: [(&[i32], Dtype); 1] = [(&shape, dtype)];
    let block = [THREADS, 1, 1];
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    let at = scalar(if is_apart { up.at as f32 } else { 0.0 })?;
    first(launch(&GATE, &[gate.array, up.array, &at], &all)?)
}

/// The RMS norm of each group of columns, and a gate beside it.
#[derive(Clone, Copy, Debug)]
pub struct NormAndGate<'a> {
    /// `[size]` for all groups, or `[groups, size]`.
    pub weight: &'a Array,
    /// Added to the mean of the squares, which keeps the root from 0.
    pub eps: f32,
    /// As many columns as there are values, of an array of `[b, l, …]`.
    pub gate: Columns<'a>,
    /// The activation of the gate.
    pub activation: Activation,
    /// The norm is of what the gate lets through; otherwise the gate sees what the norm gives.
    pub gate_is_first: bool,
}

/// Returns true when [`norm_and_gate`] supports these operands.
pub fn takes_norm_and_gate(x: &Array, by: &NormAndGate<'_>) -> bool {
    let Ok([b, l, columns]) = x.dims() else { return false };
    let shape = by.weight.shape();
    let size = shape.last().copied().unwrap_or(0);
    let is_grouped = (1..=MOST_GROUP).contains(&size) && columns % size == 0;
    let weight_fits = is_grouped && (shape == [size] || shape == [columns / size, size]);
    let dtype = x.dtype();
    let types_fit =
        dtype.is_half() && [by.weight, by.gate.array].iter().all(|of| of.dtype() == dtype);
    let gate_fits = fits_columns(by.gate, [b, l, columns]);
    // A warp is for one of them at least, and threads are counted in 32 bits.
    let count_fits = x.size() / size.max(1) as usize <= MOST_GROUPS;
    types_fit && weight_fits && gate_fits && count_fits && (1..=MOST_VALUES).contains(&x.size())
}

/// Each group of columns of `x`, `[b, l, groups · size]`, with its norm and its gate: as `x`.
///
/// # Errors
/// Operands that [`takes_norm_and_gate`] rejects; a device without CUDA.
pub fn norm_and_gate(x: &Array, by: &NormAndGate<'_>) -> Result<Array> {
    if !takes_norm_and_gate(x, by) {
        return Err(Error::new(format!("no norm and no gate of {x:?} by {by:?}")));
    }
    let NormAndGate { weight, eps, gate, activation, gate_is_first } = *by;
    let gated = [
        (c"HAS_GATE", Constant::Bool(true)),
        (c"GATE", Constant::Int(code(activation))),
        (c"GATE_AT", Constant::Int(gate.at)),
        (c"GATE_FIRST", Constant::Bool(gate_is_first)),
    ];
    let size = weight.shape().last().copied().unwrap_or(1);
    let groups = x.shape().last().copied().unwrap_or(1) / size;
    normed_groups([x, weight, gate.array], (groups, eps), &gated)
}

/// Returns true when [`rms_norm`] supports these operands.
pub fn takes_rms_norm(x: &Array, weight: &Array) -> bool {
    let shape = weight.shape();
    let size = shape.last().copied().unwrap_or(0);
    let weight_fits = matches!(shape.len(), 1 | 2) && x.shape().ends_with(shape);
    let are_few = x.size() / size.max(1) as usize <= MOST_GROUPS;
    x.dtype().is_half()
        && weight.dtype() == x.dtype()
        && weight_fits
        && (1..=MOST_GROUP).contains(&size)
        && are_few
        && (1..=MOST_VALUES).contains(&x.size())
}

/// `x / √(mean(x²) + eps) · weight` over the last dimension; `weight` is `[size]`, or `[groups,
/// size]` where `x` is `[…, groups, size]`.
///
/// # Errors
/// Operands that [`takes_rms_norm`] rejects; a device without CUDA.
pub fn rms_norm(x: &Array, weight: &Array, eps: f32) -> Result<Array> {
    if !takes_rms_norm(x, weight) {
        return Err(Error::new(format!("no norm of {x:?} by {weight:?}")));
    }
    let alone = [
        (c"HAS_GATE", Constant::Bool(false)),
        (c"GATE", Constant::Int(code(Activation::Identity))),
        (c"GATE_AT", Constant::Int(0)),
        (c"GATE_FIRST", Constant::Bool(false)),
    ];
    let groups = if let &[groups, _] = weight.shape() { groups } else { 1 };
    // What is not there is not looked at.
    normed_groups([x, weight, x], (groups, eps), &alone)
}

/// Each of so many groups of the values of `x`, as large as the weight's last dimension, with its
/// norm and what constants say of its gate.
fn normed_groups(
    inputs: [&Array; 3],
    (groups, eps): (i32, f32),
    gate: &[(&'static CStr, Constant)],
) -> Result<Array> {
    let [x, weight, _] = inputs;
    let size = weight.shape().last().copied().unwrap_or(1);
    let together = if size <= MOST_OF_WARP { LANES } else { THREADS };
    let norm = [
        (c"T", Constant::Type(x.dtype())),
        (c"D", Constant::Int(size)),
        (c"TOGETHER", Constant::Int(together)),
        (c"GROUPS", Constant::Int(groups)),
        (c"OF_GROUPS", Constant::Bool(weight.shape().len() > 1)),
        (c"EPS", Constant::Float(eps)),
    ];
    let constants = [&norm[..], gate].concat();
    let groups = (x.size() / size as usize) as i32;
    let of_block = THREADS / together;
    let grid = [(groups + of_block - 1) / of_block * THREADS, 1, 1];
    let outputs = [(x.shape(), x.dtype())];
    let all = Launch { grid, block: [THREADS, 1, 1], constants: &constants, outputs: &outputs };
    first(launch(&NORM_GATE, &inputs, &all)?)
}

/// Returns true when [`residual`] supports these operands.
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
    let y_fits = match parts_of(x, y) {
        0 => y.dtype() == dtype && y.shape() == x.shape(),
        parts => parts <= MOST_PARTS,
    };
    dtype.is_half() && y_fits && norms_fit && sizes_fit
}

/// How many parts of floats `y` is the sum of, as
/// [`several_rows_in_parts`](super::several_rows_in_parts) makes them; 0: it is of the type of `x`.
fn parts_of(x: &Array, y: &Array) -> i32 {
    match y.shape() {
        [parts, rest @ ..] if y.dtype() == Dtype::F32 && rest == x.shape() => *parts,
        _ => 0,
    }
}

/// `x + y`, and the norm of that with `norm`. y may come in float parts, `[parts, …]`. It is normed
/// first with `out_norm`, and then multiplied with `factor`. Norms are root-mean-square norms over
/// the last dimension, with weights `[columns]` and one epsilon. The sum is multiplied with the
/// first value of `scale` where there is one. Without `norm` only the first result.
///
/// # Errors
/// Operands that [`takes_residual`] rejects; a device without CUDA.
pub fn residual(
    x: &Array,
    y: &Array,
    out_norm: Option<&Array>,
    norm: Option<&Array>,
    eps: f32,
    factor: Option<f32>,
    scale: Option<&Array>,
) -> Result<(Array, Option<Array>)> {
    let scale_fits = scale.is_none_or(|scale| scale.dtype() == x.dtype() && scale.size() > 0);
    if !(takes_residual(x, y, out_norm, norm) && scale_fits) {
        return Err(Error::new(format!("no residual of {x:?} and {y:?}")));
    }
    let (dtype, columns) = (x.dtype(), x.shape().last().copied().unwrap_or(0));
    // Eight values for each thread, or sixteen. Those of longer rows take more registers than so
    // many threads have.
    let needed = (columns / 8 + LANES - 1) / LANES;
    let warps = if needed > 2 * MOST_WARPS { WARPS } else { needed.min(MOST_WARPS) };
    let constants = [
        (c"T", Constant::Type(dtype)),
        (c"COLUMNS", Constant::Int(columns)),
        (c"BLOCK_WARPS", Constant::Int(warps)),
        (c"PARTS", Constant::Int(parts_of(x, y))),
        (c"HAS_OUT_NORM", Constant::Bool(out_norm.is_some())),
        (c"HAS_NORM", Constant::Bool(norm.is_some())),
        (c"HAS_FACTOR", Constant::Bool(factor.is_some())),
        (c"FACTOR", Constant::Float(factor.unwrap_or(1.0))),
        (c"HAS_SCALE", Constant::Bool(scale.is_some())),
    ];
    let second: &[i32] = if norm.is_some() { x.shape() } else { &[1] };
    let outputs = [(x.shape(), dtype), (second, dtype)];
    let threads = warps * LANES;
    let (grid, block) = ([threads * x.rows(), 1, 1], [threads, 1, 1]);
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    // What is not there is not looked at.
    let inputs =
        [x, y, out_norm.unwrap_or(x), norm.unwrap_or(x), &scalar(eps)?, scale.unwrap_or(x)];
    let found = launch(&RESIDUAL, &inputs, &all)?;
    let [h, normed] = <[Array; 2]>::try_from(found)
        .map_err(|found| Error::new(format!("{} results of a residual", found.len())))?;
    Ok((h, norm.map(|_| normed)))
}

/// Returns true when [`sum`] supports these operands.
pub fn takes_sum(x: &Array, y: &Array) -> bool {
    let columns = x.shape().last().copied().unwrap_or(0);
    let shapes_fit = y.shape() == x.shape() || y.shape() == [columns];
    let sizes_fit = columns > 0 && columns % 8 == 0 && (1..=MOST_VALUES).contains(&x.size());
    x.dtype().is_half() && y.dtype() == x.dtype() && shapes_fit && sizes_fit
}

/// `x + y`, where `y` is of the shape of `x`, or `[columns]` for all rows.
///
/// # Errors
/// Operands that [`takes_sum`] rejects; a device without CUDA.
pub fn sum(x: &Array, y: &Array) -> Result<Array> {
    if !takes_sum(x, y) {
        return Err(Error::new(format!("no sum of {x:?} and {y:?}")));
    }
    let row = if y.shape() == x.shape() { 0 } else { y.size() as i32 };
    let constants = [(c"T", Constant::Type(x.dtype())), (c"ROW", Constant::Int(row))];
    let threads = (x.size() / 8) as i32;
    let grid = [(threads + THREADS - 1) / THREADS * THREADS, 1, 1];
    let outputs = [(x.shape(), x.dtype())];
    let all = Launch { grid, block: [THREADS, 1, 1], constants: &constants, outputs: &outputs };
    first(launch(&SUM, &[x, y], &all)?)
}

/// Returns true when [`join`] supports these operands.
pub fn takes_join(x: &Array, y: &Array) -> bool {
    let columns = x.shape().last().copied().unwrap_or(0);
    let are_wide = columns > 0 && columns % 8 == 0 && y.shape().last() == Some(&columns);
    let sizes_fit = x.size() > 0 && y.size() > 0 && x.size() + y.size() <= MOST_VALUES;
    x.dtype().is_half() && y.dtype() == x.dtype() && are_wide && sizes_fit
}

/// The rows of `x`, `[…, columns]`, then those of `y`, likewise: `[1, rows, columns]`.
///
/// # Errors
/// Operands that [`takes_join`] rejects; a device without CUDA.
pub fn join(x: &Array, y: &Array) -> Result<Array> {
    if !takes_join(x, y) {
        return Err(Error::new(format!("the rows of {x:?} and {y:?} cannot be joined")));
    }
    let columns = x.shape().last().copied().unwrap_or(1);
    let values = x.size() + y.size();
    let shape = [1, (values / columns as usize) as i32, columns];
    let constants = [(c"T", Constant::Type(x.dtype()))];
    let threads = (values / 8) as i32;
    let grid = [(threads + THREADS - 1) / THREADS * THREADS, 1, 1];
    let outputs: [(&[i32], Dtype); 1] = [(&shape, x.dtype())];
    let all = Launch { grid, block: [THREADS, 1, 1], constants: &constants, outputs: &outputs };
    first(launch(&JOIN, &[x, y], &all)?)
}

/// The factor of columns.
#[derive(Clone, Copy, Debug)]
pub enum Factor<'a> {
    /// All with this.
    Number(f32),
    /// Each column with its own, `[columns]`.
    Row(&'a Array),
}

/// Returns true when [`times`] supports so many columns.
pub fn takes_times(x: Columns<'_>, columns: i32, by: Factor<'_>) -> bool {
    let all = x.array.shape().last().copied().unwrap_or(0);
    let are_there = columns > 0 && x.at >= 0 && i64::from(x.at) + i64::from(columns) <= all.into();
    let are_aligned = columns % 8 == 0 && x.at % 8 == 0 && all % 8 == 0;
    let factors_fit = match by {
        Factor::Number(_) => true,
        Factor::Row(row) => row.shape() == [columns] && row.dtype() == x.array.dtype(),
    };
    let sizes_fit = (1..=MOST_VALUES).contains(&x.array.size());
    x.array.dtype().is_half() && are_there && are_aligned && factors_fit && sizes_fit
}

/// `columns` columns, multiplied: `[…, columns]`. The factor is rounded to their type first.
///
/// # Errors
/// Operands that [`takes_times`] rejects; a device without CUDA.
pub fn times(x: Columns<'_>, columns: i32, by: Factor<'_>) -> Result<Array> {
    if !takes_times(x, columns, by) {
        return Err(Error::new(format!("no product of {columns} columns of {x:?} with {by:?}")));
    }
    let mut shape = x.array.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = columns;
    }
    let constants = [
        (c"T", Constant::Type(x.array.dtype())),
        (c"AT", Constant::Int(x.at)),
        (c"WIDTH", Constant::Int(columns)),
        (c"IS_ROW", Constant::Bool(matches!(by, Factor::Row(_)))),
    ];
    let number;
    let by = match by {
        Factor::Row(row) => row,
        Factor::Number(factor) => {
            number = scalar(factor)?;
            &number
        }
    };
    let threads = (i64::from(x.array.rows()) * i64::from(columns) / 8) as i32;
    let grid = [(threads + THREADS - 1) / THREADS * THREADS, 1, 1];
    let outputs: [(&[i32], Dtype); 1] = [(&shape, x.array.dtype())];
    let all = Launch { grid, block: [THREADS, 1, 1], constants: &constants, outputs: &outputs };
    first(launch(&TIMES, &[x.array, by], &all)?)
}
