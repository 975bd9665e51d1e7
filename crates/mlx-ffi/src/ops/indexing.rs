//! Indices, what makes them, and what reads and writes at them.
//!
//! MLX's kernels do not look whether an index is inside of what they read or write. So an index is
//! a type here, [`Indices`], which knows a bound of its values from where they come, and each
//! operation compares that bound with the axis before anything is computed.

use std::ffi::c_int;
use std::ops::Deref;

use super::reductions::{check_not_empty, reduce};
use super::{elementwise, shapes};
use crate::stream::current;
use crate::{Array, Dtype, Error, Result, cuda, sys};

/// Unsigned integers of which it is known what they stay below, though they may not be computed
/// yet.
///
/// They come from the host, whose values are looked at, or from operations whose results are
/// indices by their nature. They can be read as any [`Array`]; an array does not become indices.
#[derive(Debug)]
pub struct Indices {
    /// U32. Nothing writes into its buffer: what is written in place is of a floating-point type.
    array: Array,
    below: usize,
}

impl Deref for Indices {
    type Target = Array;

    fn deref(&self) -> &Array {
        &self.array
    }
}

impl Indices {
    /// Indices from the host.
    ///
    /// # Errors
    /// A shape that does not hold exactly `values.len()` values.
    pub fn from_u32(values: &[u32], shape: &[i32]) -> Result<Indices> {
        let below = values.iter().max().map_or(0, |&largest| largest as usize + 1);
        Ok(Indices { array: Array::from_u32(values, shape)?, below })
    }

    /// `0, 1, …` below `count`.
    ///
    /// # Errors
    /// A negative count.
    pub fn up_to(count: i32) -> Result<Indices> {
        let below = usize::try_from(count)
            .map_err(|_| Error::new(format!("there are no {count} indices")))?;
        Ok(Indices { array: shapes::arange(0, count, Dtype::U32)?, below })
    }

    /// Results of an operation that chooses along `axis` of `a`.
    pub(crate) fn along(a: &Array, axis: i32, array: Array) -> Result<Indices> {
        if array.dtype() != Dtype::U32 {
            return Err(Error::new(format!("indices of type {:?}, expected U32", array.dtype())));
        }
        Ok(Indices { array, below: axis_size(a, axis)? })
    }

    /// The results of an operation that fails where one is not below `below`.
    pub(crate) fn checked(array: Array, below: usize) -> Result<Indices> {
        match array.dtype() {
            Dtype::U32 => Ok(Indices { array, below }),
            other => Err(Error::new(format!("indices of type {other:?}, expected U32"))),
        }
    }

    /// The whole numbers of `array` as indices below `below`: a larger one, or one that is no
    /// number, counts as one of them.
    ///
    /// # Errors
    /// A bound of 0, or one above what 32 bits number.
    pub fn bounded(array: &Array, below: usize) -> Result<Indices> {
        let last = u32::try_from(below).ok().and_then(|below| below.checked_sub(1));
        let last = last.ok_or_else(|| Error::new(format!("there are no indices below {below}")))?;
        let whole = elementwise::astype(array, Dtype::U32)?;
        let array = elementwise::minimum(&whole, &Array::from_u32(&[last], &[])?)?;
        Ok(Indices { array, below })
    }

    /// These indices below `below`: a larger one counts as one of them.
    ///
    /// # Errors
    /// As [`bounded`](Self::bounded).
    pub fn clamped(&self, below: usize) -> Result<Indices> {
        Indices::bounded(&self.array, below)
    }

    /// The exclusive upper bound of all values.
    pub fn below(&self) -> usize {
        self.below
    }

    /// That all values name one of `count` entries of what `name` is.
    ///
    /// # Errors
    /// A bound above `count`.
    pub(crate) fn check(&self, name: &str, count: usize) -> Result<()> {
        if self.below <= count {
            return Ok(());
        }
        Err(Error::new(format!(
            "[{name}] indices reach up to {}, expected indices below {count}",
            self.below - 1
        )))
    }

    /// The array that `change` makes, which holds values of this one only.
    pub(crate) fn with(&self, change: impl FnOnce(&Array) -> Result<Array>) -> Result<Indices> {
        Ok(Indices { array: change(&self.array)?, below: self.below })
    }

    /// Another handle on the same indices.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn share(&self) -> Result<Indices> {
        self.with(Array::share)
    }

    /// The indices in another shape; one dimension may be -1.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn reshape(&self, shape: &[i32]) -> Result<Indices> {
        self.with(|array| shapes::reshape(array, shape))
    }

    /// The indices repeated along dimensions of size 1 up to `shape`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn broadcast_to(&self, shape: &[i32]) -> Result<Indices> {
        self.with(|array| shapes::broadcast_to(array, shape))
    }

    /// A new dimension of size 1 at `axis`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn expand_dims(&self, axis: i32) -> Result<Indices> {
        self.with(|array| shapes::expand_dims(array, axis))
    }

    /// The dimension of size 1 at `axis` removed.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn squeeze(&self, axis: i32) -> Result<Indices> {
        self.with(|array| shapes::squeeze(array, axis))
    }

    /// The indices `start..stop` along `axis`, all of the other dimensions.
    ///
    /// # Errors
    /// Bounds that are not within the axis.
    pub fn slice_axis(&self, axis: i32, start: i32, stop: i32) -> Result<Indices> {
        self.with(|array| shapes::slice_axis(array, axis, start, stop))
    }

    /// The indices with 0 in place of those from `count` on, which is not 0.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn zero_from(&self, count: usize) -> Result<Indices> {
        if self.below <= count {
            return self.share();
        }
        let first = u32::try_from(count).map_err(|_| Error::new("more ids than 32 bits number"))?;
        let is_kept = elementwise::less(&self.array, &Array::from_u32(&[first], &[])?)?;
        let array = elementwise::where_(&is_kept, &self.array, &Array::from_u32(&[0], &[])?)?;
        Ok(Indices { array, below: count })
    }

    /// The entries of these indices at `indices` along `axis`.
    ///
    /// # Errors
    /// Indices that are not within the axis.
    pub fn take(&self, indices: &Indices, axis: i32) -> Result<Indices> {
        self.with(|array| take(array, indices, axis))
    }

    /// Indices joined along `axis`, with the largest of their bounds.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn concatenate(parts: &[&Indices], axis: i32) -> Result<Indices> {
        let arrays: Vec<&Array> = parts.iter().map(|part| &part.array).collect();
        let below = parts.iter().map(|part| part.below).max().unwrap_or(0);
        Ok(Indices { array: shapes::concatenate(&arrays, axis)?, below })
    }
}

/// The index of the largest value along `axis`, the first one of equals, as U32.
pub fn argmax(a: &Array, axis: i32, keepdims: bool) -> Result<Indices> {
    Indices::along(a, axis, reduce(sys::mlx_argmax_axis, a, axis, keepdims)?)
}

/// The indices that sort `a`, which must not be empty, along `axis` in ascending order, as U32.
pub fn argsort(a: &Array, axis: i32) -> Result<Indices> {
    check_not_empty("argsort", a)?;
    // SAFETY: the input outlives the call; mlx-c only reads it.
    let order =
        Array::from_op(|out| unsafe { sys::mlx_argsort_axis(out, a.raw(), axis, current()) })?;
    Indices::along(a, axis, order)
}

/// The indices that put the `kth` smallest value along `axis` at its place, smaller ones before
/// it and larger ones behind, as U32.
pub fn argpartition(a: &Array, kth: i32, axis: i32) -> Result<Indices> {
    // SAFETY: the input outlives the call; mlx-c only reads it.
    let order = Array::from_op(|out| unsafe {
        sys::mlx_argpartition_axis(out, a.raw(), kth, axis, current())
    })?;
    Indices::along(a, axis, order)
}

/// The entries of `a` at `indices` along `axis`.
///
/// # Errors
/// Indices that are not within the axis.
pub fn take(a: &Array, indices: &Indices, axis: i32) -> Result<Array> {
    indices.check("take", axis_size(a, axis)?)?;
    // MLX compiles its own kernels when they are needed first, which takes seconds on CUDA.
    if axis_at(a, axis)? == 0
        && let Some(rows) = cuda::take::rows_at(a, indices)?
    {
        return Ok(rows);
    }
    // SAFETY: both inputs outlive the call; mlx-c only reads them. The indices are within the axis.
    Array::from_op(|out| unsafe {
        sys::mlx_take_axis(out, a.raw(), indices.raw(), axis, current())
    })
}

/// Takes from `a`, `[rows, positions, size]`, the positions at `indices`, `[n, 1]`: `[n, 1, size]`.
/// Indices count all positions, one row after the other.
///
/// # Errors
/// Indices that are not within these; other numbers of dimensions.
pub fn take_positions(a: &Array, indices: &Indices) -> Result<Array> {
    let [rows, positions, size] = a.dims()?;
    let all = rows.checked_mul(positions).ok_or_else(|| {
        let shape = a.shape();
        Error::new(format!("[take_positions] the positions of {shape:?} exceed 2³¹ - 1"))
    })?;
    indices.check("take_positions", all as usize)?;
    if let Some(taken) = cuda::take::positions_at(a, indices)? {
        return Ok(taken);
    }
    take(&shapes::reshape(a, &[all, size])?, indices, 0)
}

/// For each position, the entry of `a` at the index given there along `axis`.
///
/// # Errors
/// Indices that are not within the axis, or not shaped as `a` or 1 along the others.
pub fn take_along_axis(a: &Array, indices: &Indices, axis: i32) -> Result<Array> {
    check_along("take_along_axis", a, indices, axis)?;
    if axis_at(a, axis)? == 1
        && let Some(entries) = cuda::take::entries_at(a, indices)?
    {
        return Ok(entries);
    }
    // SAFETY: both inputs outlive the call; mlx-c only reads them. The indices are within the axis.
    Array::from_op(|out| unsafe {
        sys::mlx_take_along_axis(out, a.raw(), indices.raw(), axis, current())
    })
}

/// `a` with the entries at `indices` along `axis` replaced by `values`.
///
/// # Errors
/// Indices that are not within the axis, or not shaped as `a` or 1 along the others; values that do
/// not broadcast to the indices.
pub fn put_along_axis(a: &Array, indices: &Indices, values: &Array, axis: i32) -> Result<Array> {
    scatter("put_along_axis", sys::mlx_put_along_axis, (a, indices, values), axis)
}

/// `a` with `values` added at `indices` along `axis`; repeated indices add up.
///
/// # Errors
/// Indices that are not within the axis, or not shaped as `a` or 1 along the others; values that do
/// not broadcast to the indices.
pub fn scatter_add_axis(a: &Array, indices: &Indices, values: &Array, axis: i32) -> Result<Array> {
    scatter("scatter_add_axis", sys::mlx_scatter_add_axis, (a, indices, values), axis)
}

type Scatter = unsafe extern "C" fn(
    *mut sys::mlx_array,
    sys::mlx_array,
    sys::mlx_array,
    sys::mlx_array,
    c_int,
    sys::mlx_stream,
) -> c_int;

fn scatter(
    name: &str,
    op: Scatter,
    (a, indices, values): (&Array, &Indices, &Array),
    axis: i32,
) -> Result<Array> {
    check_along(name, a, indices, axis)?;
    let (shape, found) = (indices.shape(), values.shape());
    let mut sizes = shape.iter().rev().zip(found.iter().rev());
    if found.len() > shape.len() || sizes.any(|(index, value)| ![1, *index].contains(value)) {
        return Err(Error::new(format!(
            "[{name}] values of shape {found:?} do not broadcast to indices of shape {shape:?}"
        )));
    }
    // SAFETY: `op` is one of the two above, which only reads its inputs; all outlive the call, and
    // the indices are within the axis.
    Array::from_op(|out| unsafe { op(out, a.raw(), indices.raw(), values.raw(), axis, current()) })
}

/// The size of `a` along `axis`, which may be negative.
fn axis_size(a: &Array, axis: i32) -> Result<usize> {
    Ok(a.shape()[axis_at(a, axis)?] as usize)
}

fn axis_at(a: &Array, axis: i32) -> Result<usize> {
    let rank = a.shape().len();
    let at = i64::from(axis) + if axis < 0 { rank as i64 } else { 0 };
    usize::try_from(at)
        .ok()
        .filter(|at| *at < rank)
        .ok_or_else(|| Error::new(format!("an array of shape {:?} has no axis {axis}", a.shape())))
}

/// That `indices` name entries along `axis` for each position of `a` elsewhere, or for all alike.
fn check_along(name: &str, a: &Array, indices: &Indices, axis: i32) -> Result<()> {
    let at = axis_at(a, axis)?;
    let (shape, found) = (a.shape(), indices.shape());
    let mut others = shape.iter().zip(found).enumerate().filter(|(dim, _)| *dim != at);
    if shape.len() != found.len() || others.any(|(_, (size, index))| ![1, *size].contains(index)) {
        return Err(Error::new(format!(
            "[{name}] indices of shape {found:?} do not fit axis {axis} of an array of shape {shape:?}"
        )));
    }
    indices.check(name, shape[at] as usize)
}
