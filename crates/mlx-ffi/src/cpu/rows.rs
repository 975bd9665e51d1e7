//! Norms, rotations, gates and sums by our own kernels for CPUs.

use std::ops::Range;

use cpu_kernels::{Gated, Heads, Norm, Rotation, Rows, Sum};

use super::operation::{Inputs, Outcome, View, operation};
use super::{failed, kernel_dtype, leading_shape};
use crate::{Activation, Array, Dtype, Error, Result};

/// `x / √(mean(x²) + eps) · weight` over the last dimension of at most four; in the common type of
/// both. `weight` is `[size]`, or row-major `[groups, size]` where `x` is `[…, groups, size]`.
///
/// # Errors
/// Shapes or types that do not fit; types other than f32, f16 and bf16; a stream of the GPU.
pub fn rms_norm(x: &Array, weight: &Array, eps: f32) -> Result<Array> {
    let (sizes, d) = sizes(x)?;
    let outcome = Outcome::row_major(x.dtype(), x.shape());
    rows(Values::Rows(x), (sizes, d), Some((weight, eps)), None, outcome)
}

/// The RMS norm of each group of columns of `x`, `[b, l, groups · size]`, by itself: `weight` is
/// `[size]` for all of them, or row-major `[groups, size]`. As `x`.
///
/// # Errors
/// As [`rms_norm`].
pub fn rms_norm_of_groups(x: &Array, weight: &Array, eps: f32) -> Result<Array> {
    let [b, l, columns] = x.dims()?;
    let size = weight.shape().last().copied().unwrap_or(0);
    if size <= 0 || columns % size != 0 {
        return Err(Error::new(format!("{x:?} has no groups for the weight {weight:?}")));
    }
    let sizes = [b, l, columns / size].map(|size| size as usize);
    let outcome = Outcome::row_major(x.dtype(), x.shape());
    rows(Values::Heads(x, 0), (sizes, size as usize), Some((weight, eps)), None, outcome)
}

/// `(x - mean(x)) / √(variance(x) + eps) · weight + bias` over the last dimension of at most four,
/// rounded once. `weight` and `bias` are `[size]`, of the type of `x`.
///
/// # Errors
/// As [`rms_norm`].
pub fn layer_norm(x: &Array, weight: &Array, bias: Option<&Array>, eps: f32) -> Result<Array> {
    let (sizes, d) = sizes(x)?;
    let dtype = kernel_dtype(x.dtype())?;
    let fits = |part: &&Array| part.shape() == [d as i32] && part.dtype() == x.dtype();
    let parts = || std::iter::once(weight).chain(bias);
    if !parts().all(|part| fits(&part)) {
        return Err(Error::new(format!("rows {x:?}, weight {weight:?}, bias {bias:?} do not fit")));
    }
    let outcome = Outcome::row_major(x.dtype(), x.shape());
    let inputs: Vec<&Array> = std::iter::once(x).chain(parts()).collect();
    operation(&inputs, Inputs::Strided, outcome, move |inputs, out| {
        let x = leading(&inputs[0], 0, dtype);
        let (weight, bias) = (inputs[1].bytes, inputs.get(2).map(|view| view.bytes));
        let norm = Some(Norm { weight, eps, is_centred: true, bias });
        cpu_kernels::rows(Rows { dtype, sizes, d, x, norm, rotation: None, out }).map_err(failed)
    })
}

/// The heads in `columns` of `x`, `[b, l, …]`, `n · head_dim` many, as `[b, n, l, head_dim]`: each
/// normed by a weight of `[head_dim]`, then with its first `dims` values rotated in pairs (`i`,
/// `i + dims / 2`).
///
/// Of `turns`, `[b or 1, l, dims]` F32, a position's first half are the cosines of its pairs'
/// angles, the second half their sines. `swap_axes(1, 2)` of the result is row-major.
///
/// # Errors
/// Shapes or types that do not fit; types other than f32, f16 and bf16; a stream of the GPU.
pub fn heads(
    x: &Array,
    columns: Range<i32>,
    head_dim: i32,
    norm: Option<(&Array, f32)>,
    turns: Option<&Array>,
) -> Result<Array> {
    let [b, l, _] = x.dims()?;
    let first = first(x, &columns)?;
    let all = columns.end - columns.start;
    if head_dim <= 0 || all % head_dim != 0 {
        return Err(Error::new(format!(
            "columns {columns:?} of {x:?} are no heads of {head_dim} values"
        )));
    }
    let n = all / head_dim;
    let sizes = [b, l, n].map(|size| size as usize);
    let shape = [b, n, l, head_dim];
    let outcome = Outcome { dtype: x.dtype(), shape: &shape, order: Some(&[0, 2, 1, 3]) };
    rows(Values::Heads(x, first), (sizes, head_dim as usize), norm, turns, outcome)
}

/// The source of rows of values.
#[derive(Clone, Copy)]
enum Values<'a> {
    /// They are those of an array.
    Rows(&'a Array),
    /// They lie side by side from a column of an array of `[b, l, …]` on.
    Heads(&'a Array, usize),
}

/// `of` as `sizes` rows of `d` values, normed and rotated, to `outcome`.
fn rows(
    of: Values<'_>,
    (sizes, d): ([usize; 3], usize),
    norm: Option<(&Array, f32)>,
    turns: Option<&Array>,
    outcome: Outcome<'_>,
) -> Result<Array> {
    let (x, head) = match of {
        Values::Rows(x) => (x, None),
        Values::Heads(x, first) => (x, Some(first)),
    };
    let dtype = kernel_dtype(x.dtype())?;
    let dims = turns.map(|turns| turns.shape().last().copied().unwrap_or(0) as usize);
    let [b, l, _] = sizes.map(|size| size as i32);
    let (heads, columns) = (sizes[2] as i32, d as i32);
    let norm_fits = norm.is_none_or(|(weight, _)| {
        let fits = [&[columns][..], &[heads, columns]].contains(&weight.shape());
        fits && weight.dtype() == x.dtype()
    });
    let turns_fit = turns.is_none_or(|turns| {
        let fits = matches!(turns.shape(), &[rows, positions, _] if positions == l && (rows == 1 || rows == b));
        fits && turns.dtype() == Dtype::F32 && turns.shape()[2] as usize <= d
    });
    if !(norm_fits && turns_fit) {
        let weight = norm.map(|(weight, _)| weight);
        return Err(Error::new(format!(
            "rows {x:?}, weight {weight:?} and turns {turns:?} do not fit"
        )));
    }
    let eps = norm.map(|(_, eps)| eps);
    let inputs: Vec<&Array> =
        [Some(x), norm.map(|(weight, _)| weight), turns].into_iter().flatten().collect();
    operation(&inputs, Inputs::Strided, outcome, move |inputs, out| {
        let x = match head {
            Some(first) => {
                let [b, l] = inputs[0].strides();
                Heads { data: inputs[0].from(first, dtype), strides: [b, l, d] }
            }
            None => leading(&inputs[0], 0, dtype),
        };
        let mut rest = inputs[1..].iter().map(|view| view.bytes);
        let norm =
            eps.and_then(|eps| rest.next().map(|weight| Norm::root_mean_square(weight, eps)));
        let rotation = dims.and_then(|dims| rest.next().map(|turns| Rotation { dims, turns }));
        cpu_kernels::rows(Rows { dtype, sizes, d, x, norm, rotation, out }).map_err(failed)
    })
}

/// `activation(gate) · up` of two arrays' columns, as many of both, in arrays of at most four
/// dimensions that are else of one shape and of one type.
///
/// # Errors
/// Shapes or types that do not fit; types other than f32, f16 and bf16; a stream of the GPU.
pub fn gated(
    activation: Activation,
    (gate, of_gate): (&Array, Range<i32>),
    (up, of_up): (&Array, Range<i32>),
) -> Result<Array> {
    let dtype = kernel_dtype(gate.dtype())?;
    let firsts = [first(gate, &of_gate)?, first(up, &of_up)?];
    let (rows, up_rows) = (leading_shape(gate), leading_shape(up));
    if rows != up_rows || of_gate.len() != of_up.len() || gate.dtype() != up.dtype() {
        return Err(Error::new(format!(
            "a gate {of_gate:?} of {gate:?} does not fit {of_up:?} of {up:?}"
        )));
    }
    let (sizes, _) = sizes(gate)?;
    let d = of_gate.len();
    let shape = [rows, &[d as i32]].concat();
    let outcome = Outcome::row_major(gate.dtype(), &shape);
    operation(&[gate, up], Inputs::Strided, outcome, move |inputs, out| {
        let [gate, up] = [0, 1].map(|i| leading(&inputs[i], firsts[i], dtype));
        cpu_kernels::gated(Gated { dtype, sizes, d, gate, up, activation, out }).map_err(failed)
    })
}

/// `x + y` for `x` of at most four dimensions and `y` of the same shape, or of `x`'s last dimension
/// alone.
///
/// # Errors
/// Shapes or types that do not fit; types other than f32, f16 and bf16; a stream of the GPU.
pub fn add(x: &Array, y: &Array) -> Result<Array> {
    let dtype = kernel_dtype(x.dtype())?;
    let (sizes, d) = sizes(x)?;
    if !(x.shape().ends_with(y.shape()) && [1, x.shape().len()].contains(&y.shape().len()))
        || x.dtype() != y.dtype()
    {
        return Err(Error::new(format!("{x:?} and {y:?} cannot be added")));
    }
    let outcome = Outcome::row_major(x.dtype(), x.shape());
    operation(&[x, y], Inputs::Strided, outcome, move |inputs, out| {
        let operands = [0, 1].map(|i| leading(&inputs[i], 0, dtype));
        cpu_kernels::sum(Sum { dtype, sizes, d, operands, out }).map_err(failed)
    })
}

/// The first of some columns of `x`.
///
/// # Errors
/// Columns that it does not have.
fn first(x: &Array, columns: &Range<i32>) -> Result<usize> {
    let all = x.shape().last().copied().unwrap_or(0);
    if columns.start < 0 || columns.end < columns.start || columns.end > all {
        return Err(Error::new(format!("{x:?} has no columns {columns:?}")));
    }
    Ok(columns.start as usize)
}

/// The numbers of rows, and the values of a row.
fn sizes(x: &Array) -> Result<([usize; 3], usize)> {
    let Some((&d, leading)) = x.shape().split_last().filter(|(_, leading)| leading.len() <= 3)
    else {
        return Err(Error::new(format!("{x:?} has no rows in at most three dimensions")));
    };
    let mut sizes = [1; 3];
    for (size, &found) in sizes[3 - leading.len()..].iter_mut().zip(leading) {
        *size = found as usize;
    }
    Ok((sizes, d as usize))
}

/// Rows of up to three dimensions, from column `first` on.
fn leading<'a>(view: &View<'a>, first: usize, dtype: cpu_kernels::Dtype) -> Heads<'a> {
    let found = view.leading();
    let mut strides = [0; 3];
    for (stride, &found) in strides[3 - found.len()..].iter_mut().zip(found) {
        *stride = found as usize;
    }
    Heads { data: view.from(first, dtype), strides }
}
