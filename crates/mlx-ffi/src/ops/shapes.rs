//! Operations on shapes, and arrays made of a shape alone.

use crate::array::check_size;
use crate::stream::current;
use crate::vector::VectorArray;
use crate::{Array, Dtype, Error, Result, sys};

/// The bytes of `a` as an integer type; the last dimension changes with the element's size. An
/// integer's bytes are never seen as floats: what is written in place has such a type, and
/// [`Indices`](crate::Indices) are integers.
///
/// # Errors
/// A type that is no integer; sizes that do not fit.
pub fn view(a: &Array, dtype: Dtype) -> Result<Array> {
    if dtype.is_float() || matches!(dtype, Dtype::Bool | Dtype::Complex64) {
        return Err(Error::new(format!("[view] {dtype:?} is no integer type")));
    }
    let last = a.shape().last().map_or(1, |&last| i64::from(last));
    let bytes = last * a.dtype().size() as i64;
    if bytes / dtype.size() as i64 > i64::from(i32::MAX) {
        return Err(Error::new(format!("[view] no array of {dtype:?} is as long as {a:?}")));
    }
    // SAFETY: the input outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe { sys::mlx_view(out, a.raw(), dtype.raw(), current()) })
}

/// Gives the elements another shape; one dimension may be -1.
pub fn reshape(a: &Array, shape: &[i32]) -> Result<Array> {
    check_size(shape)?;
    // SAFETY: input and shape outlive the call; mlx-c copies the shape.
    Array::from_op(|out| unsafe {
        sys::mlx_reshape(out, a.raw(), shape.as_ptr(), shape.len(), current())
    })
}

/// `a` repeated along dimensions of size 1 up to `shape`.
pub fn broadcast_to(a: &Array, shape: &[i32]) -> Result<Array> {
    check_size(shape)?;
    // SAFETY: input and shape outlive the call; mlx-c copies the shape.
    Array::from_op(|out| unsafe {
        sys::mlx_broadcast_to(out, a.raw(), shape.as_ptr(), shape.len(), current())
    })
}

/// Two dimensions exchanged.
pub fn swap_axes(a: &Array, first: i32, second: i32) -> Result<Array> {
    // SAFETY: the input outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe { sys::mlx_swapaxes(out, a.raw(), first, second, current()) })
}

/// The dimensions in another order: dimension `i` of the result is `axes[i]` of `a`.
///
/// # Errors
/// Axes that are not all of `a`, each once.
pub fn transpose(a: &Array, axes: &[i32]) -> Result<Array> {
    // SAFETY: input and axes outlive the call; mlx-c copies the axes, and MLX checks them.
    Array::from_op(|out| unsafe {
        sys::mlx_transpose_axes(out, a.raw(), axes.as_ptr(), axes.len(), current())
    })
}

/// `a` with its elements side by side in row-major order, copied where they are not.
pub fn contiguous(a: &Array) -> Result<Array> {
    // SAFETY: the input outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe { sys::mlx_contiguous(out, a.raw(), false, current()) })
}

/// A new dimension of size 1 at `axis`.
pub fn expand_dims(a: &Array, axis: i32) -> Result<Array> {
    // SAFETY: the input outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe { sys::mlx_expand_dims(out, a.raw(), axis, current()) })
}

/// The dimension of size 1 at `axis` removed.
pub fn squeeze(a: &Array, axis: i32) -> Result<Array> {
    // SAFETY: the input outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe { sys::mlx_squeeze_axis(out, a.raw(), axis, current()) })
}

/// The elements `start..stop` along `axis`, all of the other dimensions.
pub fn slice_axis(a: &Array, axis: i32, start: i32, stop: i32) -> Result<Array> {
    let (from, to) = bounds(a, axis, start, stop)?;
    let ones = vec![1; from.len()];
    // SAFETY: input and bounds outlive the call; mlx-c copies the bounds, which have the array's
    // rank.
    Array::from_op(|out| unsafe {
        sys::mlx_slice(
            out,
            a.raw(),
            from.as_ptr(),
            from.len(),
            to.as_ptr(),
            to.len(),
            ones.as_ptr(),
            ones.len(),
            current(),
        )
    })
}

/// `a` with the elements `start..stop` along `axis` replaced by `update`. Writes in place where
/// nothing else holds `a`.
pub fn slice_update_axis(
    a: &Array,
    update: &Array,
    axis: i32,
    start: i32,
    stop: i32,
) -> Result<Array> {
    let (from, to) = bounds(a, axis, start, stop)?;
    let ones = vec![1; from.len()];
    // SAFETY: inputs and bounds outlive the call; mlx-c copies the bounds, which have the array's
    // rank.
    Array::from_op(|out| unsafe {
        sys::mlx_slice_update(
            out,
            a.raw(),
            update.raw(),
            from.as_ptr(),
            from.len(),
            to.as_ptr(),
            to.len(),
            ones.as_ptr(),
            ones.len(),
            current(),
        )
    })
}

/// The bounds of `start..stop` along `axis` and of everything along the others.
fn bounds(a: &Array, axis: i32, start: i32, stop: i32) -> Result<(Vec<i32>, Vec<i32>)> {
    let shape = a.shape();
    let rank = shape.len();
    let index = if axis < 0 { axis + rank as i32 } else { axis };
    let size = usize::try_from(index).ok().and_then(|index| shape.get(index)).copied();
    match size {
        Some(size) if 0 <= start && start <= stop && stop <= size => {
            let mut from = vec![0; rank];
            let mut to = shape.to_vec();
            from[index as usize] = start;
            to[index as usize] = stop;
            Ok((from, to))
        }
        _ => Err(Error::new(format!("no slice {start}..{stop} along axis {axis} of {shape:?}"))),
    }
}

/// The arrays joined along `axis`.
pub fn concatenate(arrays: &[&Array], axis: i32) -> Result<Array> {
    let sizes = arrays.iter().map(|array| {
        let shape = array.shape();
        let at = if axis < 0 { i64::from(axis) + shape.len() as i64 } else { axis.into() };
        usize::try_from(at).ok().and_then(|at| shape.get(at)).map_or(0, |&size| i64::from(size))
    });
    if sizes.sum::<i64>() > i64::from(i32::MAX) {
        return Err(Error::new(format!("[concatenate] no axis is as long as those of {arrays:?}")));
    }
    let list = VectorArray::of(arrays)?;
    // SAFETY: the list outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe { sys::mlx_concatenate_axis(out, list.0, axis, current()) })
}

/// `start, start + 1, …` below `stop`.
pub fn arange(start: i32, stop: i32, dtype: Dtype) -> Result<Array> {
    // SAFETY: takes plain values.
    Array::from_op(|out| unsafe {
        sys::mlx_arange(out, start.into(), stop.into(), 1.0, dtype.raw(), current())
    })
}

/// `a`, once `dependency` is computed.
///
/// # Errors
/// Those of MLX.
pub fn after(a: &Array, dependency: &Array) -> Result<Array> {
    let (a, dependency) = (VectorArray::of(&[a])?, VectorArray::of(&[dependency])?);
    // SAFETY: the lists outlive the call; mlx-c only reads them.
    let held = VectorArray::from_op(|out| unsafe { sys::mlx_depends(out, a.0, dependency.0) })?;
    held.into_iter().next().ok_or_else(|| Error::new("MLX returned no array"))
}

/// An array of zeros.
pub fn zeros(shape: &[i32], dtype: Dtype) -> Result<Array> {
    check_size(shape)?;
    // SAFETY: the shape outlives the call; mlx-c copies it.
    Array::from_op(|out| unsafe {
        sys::mlx_zeros(out, shape.as_ptr(), shape.len(), dtype.raw(), current())
    })
}
