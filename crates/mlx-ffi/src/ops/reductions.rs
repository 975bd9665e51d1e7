//! Operations along an axis: sums, extremes, softmax, order.

use std::ffi::c_int;

use crate::stream::current;
use crate::{Array, Dtype, Error, Result, sys};

type AxisReduction = unsafe extern "C" fn(
    *mut sys::mlx_array,
    sys::mlx_array,
    c_int,
    bool,
    sys::mlx_stream,
) -> c_int;

pub(super) fn reduce(op: AxisReduction, a: &Array, axis: i32, keepdims: bool) -> Result<Array> {
    // SAFETY: `op` is one of mlx-c's below, which only reads its input; that outlives the call.
    Array::from_op(|out| unsafe { op(out, a.raw(), axis, keepdims, current()) })
}

/// Refuses what would stop the process: MLX divides by the sizes of the dimensions.
pub(super) fn check_not_empty(op: &str, a: &Array) -> Result<()> {
    if a.size() > 0 {
        return Ok(());
    }
    Err(Error::new(format!("[{op}] the array of shape {:?} is empty", a.shape())))
}

/// The sum along `axis`.
pub fn sum(a: &Array, axis: i32, keepdims: bool) -> Result<Array> {
    reduce(sys::mlx_sum_axis, a, axis, keepdims)
}

/// The largest value along `axis`.
pub fn max(a: &Array, axis: i32, keepdims: bool) -> Result<Array> {
    reduce(sys::mlx_max_axis, a, axis, keepdims)
}

/// The smallest value along `axis`.
pub fn min(a: &Array, axis: i32, keepdims: bool) -> Result<Array> {
    reduce(sys::mlx_min_axis, a, axis, keepdims)
}

/// `ln Σ e^a` along `axis`.
pub fn logsumexp(a: &Array, axis: i32, keepdims: bool) -> Result<Array> {
    reduce(sys::mlx_logsumexp_axis, a, axis, keepdims)
}

/// Softmax along `axis`; `precise` accumulates in f32.
pub fn softmax(a: &Array, axis: i32, precise: bool) -> Result<Array> {
    // SAFETY: the input outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe { sys::mlx_softmax_axis(out, a.raw(), axis, precise, current()) })
}

/// The values along `axis`, of which there must be some, in ascending order.
pub fn sort(a: &Array, axis: i32) -> Result<Array> {
    check_not_empty("sort", a)?;
    // SAFETY: the input outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe { sys::mlx_sort_axis(out, a.raw(), axis, current()) })
}

/// Which end a cumulative sum starts from, and whether an element counts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cumulative {
    /// From the first element, itself included.
    Forward,
    /// From the last element, itself left out.
    ReverseExclusive,
}

/// The running sum along `axis` of an array that is not empty.
///
/// On a GPU, MLX 0.32 sums along another axis than the last one with more blocks than there are:
/// it writes behind the result, as for `[2, 2, 8, 3, 1]` along the fourth axis. So the axis comes
/// last, and its values side by side.
pub fn cumsum(a: &Array, axis: i32, direction: Cumulative) -> Result<Array> {
    check_not_empty("cumsum", a)?;
    let rank = a.shape().len() as i32;
    let at = if axis < 0 { axis + rank } else { axis };
    if !(0..rank).contains(&at) {
        return Err(Error::new(format!("no axis {axis} of {a:?} to sum along")));
    }
    // As MLX counts what is true.
    let counted = (a.dtype() == Dtype::Bool).then(|| super::astype(a, Dtype::I32)).transpose()?;
    let a = counted.as_ref().unwrap_or(a);
    match (a.shape()[at as usize], direction) {
        (1, Cumulative::Forward) => return a.share(),
        (1, Cumulative::ReverseExclusive) => return super::zeros(a.shape(), a.dtype()),
        _ => {}
    }
    if at == rank - 1 {
        return cumsum_of_rows(&super::contiguous(a)?, direction);
    }
    let rows = super::contiguous(&super::swap_axes(a, at, -1)?)?;
    super::swap_axes(&cumsum_of_rows(&rows, direction)?, at, -1)
}

/// The running sum along the last axis of a row-major array.
fn cumsum_of_rows(a: &Array, direction: Cumulative) -> Result<Array> {
    let (reverse, inclusive) = match direction {
        Cumulative::Forward => (false, true),
        Cumulative::ReverseExclusive => (true, false),
    };
    let dtype = sys::mlx_optional_dtype { value: a.dtype().raw(), has_value: false };
    // SAFETY: the input outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe {
        sys::mlx_cumsum_axis(out, a.raw(), -1, reverse, inclusive, dtype, current())
    })
}
