//! Operations on arrays, named as in MLX. Inputs broadcast and promote as MLX does it; axes may
//! be negative. Every error is MLX's own account of what did not fit.

use std::ffi::c_int;

use crate::stream::{current, on_cpu};
use crate::vector::VectorArray;
use crate::{Array, Dtype, Error, Result, sys};

type Unary = unsafe extern "C" fn(*mut sys::mlx_array, sys::mlx_array, sys::mlx_stream) -> c_int;
type Binary = unsafe extern "C" fn(
    *mut sys::mlx_array,
    sys::mlx_array,
    sys::mlx_array,
    sys::mlx_stream,
) -> c_int;
type AxisReduction = unsafe extern "C" fn(
    *mut sys::mlx_array,
    sys::mlx_array,
    c_int,
    bool,
    sys::mlx_stream,
) -> c_int;

fn unary(op: Unary, a: &Array) -> Result<Array> {
    // SAFETY: `op` is one of mlx-c's below, which only reads its input; that outlives the call.
    Array::from_op(|out| unsafe { op(out, a.raw(), current()) })
}

fn binary(op: Binary, a: &Array, b: &Array) -> Result<Array> {
    // SAFETY: `op` is one of mlx-c's below, which only reads its inputs; both outlive the call.
    Array::from_op(|out| unsafe { op(out, a.raw(), b.raw(), current()) })
}

fn reduce(op: AxisReduction, a: &Array, axis: i32, keepdims: bool) -> Result<Array> {
    // SAFETY: `op` is one of mlx-c's below, which only reads its input; that outlives the call.
    Array::from_op(|out| unsafe { op(out, a.raw(), axis, keepdims, current()) })
}

/// Refuses what would stop the process: MLX divides by the sizes of the dimensions.
fn check_not_empty(op: &str, a: &Array) -> Result<()> {
    if a.size() > 0 {
        return Ok(());
    }
    Err(Error::new(format!("[{op}] the array of shape {:?} is empty", a.shape())))
}

/// Refuses a shape that MLX would miscount: it multiplies the dimensions without looking for an
/// overflow, and lets `reshape` have -2. A dimension of -1 is left to MLX.
pub(crate) fn check_size(shape: &[i32]) -> Result<()> {
    let size = shape.iter().try_fold(LARGEST_ELEMENT, |size, &dim| match dim {
        -1 => Some(size),
        _ => size.checked_mul(usize::try_from(dim).ok()?),
    });
    // Strides and offsets are signed.
    if size.is_some_and(|size| isize::try_from(size).is_ok()) {
        return Ok(());
    }
    Err(Error::new(format!("no array can have the shape {shape:?}")))
}

/// Bytes of the largest type.
const LARGEST_ELEMENT: usize = 8;

/// `-a`.
pub fn negative(a: &Array) -> Result<Array> {
    unary(sys::mlx_negative, a)
}

/// `e^a`.
pub fn exp(a: &Array) -> Result<Array> {
    unary(sys::mlx_exp, a)
}

/// The hyperbolic tangent.
pub fn tanh(a: &Array) -> Result<Array> {
    unary(sys::mlx_tanh, a)
}

/// `1 / (1 + e^-a)`.
pub fn sigmoid(a: &Array) -> Result<Array> {
    unary(sys::mlx_sigmoid, a)
}

/// The error function.
pub fn erf(a: &Array) -> Result<Array> {
    unary(sys::mlx_erf, a)
}

/// `a²`.
pub fn square(a: &Array) -> Result<Array> {
    unary(sys::mlx_square, a)
}

/// `|a|`.
pub fn abs(a: &Array) -> Result<Array> {
    unary(sys::mlx_abs, a)
}

/// `a + b`.
pub fn add(a: &Array, b: &Array) -> Result<Array> {
    binary(sys::mlx_add, a, b)
}

/// `a - b`.
pub fn subtract(a: &Array, b: &Array) -> Result<Array> {
    binary(sys::mlx_subtract, a, b)
}

/// `a · b`, element by element.
pub fn multiply(a: &Array, b: &Array) -> Result<Array> {
    binary(sys::mlx_multiply, a, b)
}

/// `a / b`.
pub fn divide(a: &Array, b: &Array) -> Result<Array> {
    binary(sys::mlx_divide, a, b)
}

/// `a` to the power `b`.
pub fn power(a: &Array, b: &Array) -> Result<Array> {
    binary(sys::mlx_power, a, b)
}

/// The larger of each pair.
pub fn maximum(a: &Array, b: &Array) -> Result<Array> {
    binary(sys::mlx_maximum, a, b)
}

/// The smaller of each pair.
pub fn minimum(a: &Array, b: &Array) -> Result<Array> {
    binary(sys::mlx_minimum, a, b)
}

/// Matrix product over the last two dimensions.
pub fn matmul(a: &Array, b: &Array) -> Result<Array> {
    binary(sys::mlx_matmul, a, b)
}

/// `a b + c` of matrices, whose sum is rounded once; `c` broadcasts against the product.
///
/// # Errors
/// Shapes that do not fit.
pub fn addmm(c: &Array, a: &Array, b: &Array) -> Result<Array> {
    // SAFETY: the inputs outlive the call; mlx-c only reads them.
    Array::from_op(|out| unsafe {
        sys::mlx_addmm(out, c.raw(), a.raw(), b.raw(), 1.0, 1.0, current())
    })
}

/// `x w` with a matrix of `w`, `[matrices, k, n]`, chosen for each row of `x` by `indices`, U32,
/// which broadcasts against the leading dimensions of `x`. `sorted`: the indices go upwards. Nothing
/// checks them: MLX reads outside the weights where they are not below `matrices`.
///
/// On the CPU MLX has this in f32 only, and its evaluation of another type would end the process.
///
/// # Errors
/// Shapes that do not fit; on a stream of the CPU, a type that is not f32.
pub fn gather_mm(x: &Array, w: &Array, indices: &Array, sorted: bool) -> Result<Array> {
    if on_cpu()? && (x.dtype(), w.dtype()) != (Dtype::F32, Dtype::F32) {
        return Err(Error::new(format!(
            "MLX gathers products in f32 only on the CPU, not {x:?} with {w:?}"
        )));
    }
    let empty = sys::mlx_array { ctx: std::ptr::null_mut() };
    // SAFETY: the inputs outlive the call; mlx-c only reads them and takes empty left-hand indices.
    Array::from_op(|out| unsafe {
        sys::mlx_gather_mm(out, x.raw(), w.raw(), empty, indices.raw(), sorted, current())
    })
}

/// `a < b`, as Bool.
pub fn less(a: &Array, b: &Array) -> Result<Array> {
    binary(sys::mlx_less, a, b)
}

/// `a > b`, as Bool.
pub fn greater(a: &Array, b: &Array) -> Result<Array> {
    binary(sys::mlx_greater, a, b)
}

/// `a ≥ b`, as Bool.
pub fn greater_equal(a: &Array, b: &Array) -> Result<Array> {
    binary(sys::mlx_greater_equal, a, b)
}

/// Both true, as Bool.
pub fn logical_and(a: &Array, b: &Array) -> Result<Array> {
    binary(sys::mlx_logical_and, a, b)
}

/// `x` where `condition` holds, else `y`.
pub fn where_(condition: &Array, x: &Array, y: &Array) -> Result<Array> {
    // SAFETY: all inputs outlive the call; mlx-c only reads them.
    Array::from_op(|out| unsafe {
        sys::mlx_where(out, condition.raw(), x.raw(), y.raw(), current())
    })
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

/// The index of the largest value along `axis`, the first one of equals, as U32.
pub fn argmax(a: &Array, axis: i32, keepdims: bool) -> Result<Array> {
    reduce(sys::mlx_argmax_axis, a, axis, keepdims)
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

/// The indices that sort `a`, which must not be empty, along `axis` in ascending order, as U32.
pub fn argsort(a: &Array, axis: i32) -> Result<Array> {
    check_not_empty("argsort", a)?;
    // SAFETY: the input outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe { sys::mlx_argsort_axis(out, a.raw(), axis, current()) })
}

/// The indices that put the `kth` smallest value along `axis` at its place, smaller ones before
/// it and larger ones behind, as U32.
pub fn argpartition(a: &Array, kth: i32, axis: i32) -> Result<Array> {
    // SAFETY: the input outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe { sys::mlx_argpartition_axis(out, a.raw(), kth, axis, current()) })
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
pub fn cumsum(a: &Array, axis: i32, direction: Cumulative) -> Result<Array> {
    check_not_empty("cumsum", a)?;
    let (reverse, inclusive) = match direction {
        Cumulative::Forward => (false, true),
        Cumulative::ReverseExclusive => (true, false),
    };
    let dtype = sys::mlx_optional_dtype { value: a.dtype().raw(), has_value: false };
    // SAFETY: the input outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe {
        sys::mlx_cumsum_axis(out, a.raw(), axis, reverse, inclusive, dtype, current())
    })
}

/// Converts the values to another type.
pub fn astype(a: &Array, dtype: Dtype) -> Result<Array> {
    // SAFETY: the input outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe { sys::mlx_astype(out, a.raw(), dtype.raw(), current()) })
}

/// Reads the bytes as another type; the last dimension changes with the element's size.
pub fn view(a: &Array, dtype: Dtype) -> Result<Array> {
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
    let list = VectorArray::of(arrays)?;
    // SAFETY: the list outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe { sys::mlx_concatenate_axis(out, list.0, axis, current()) })
}

/// `a` cut along `axis` before each of `indices`, which ascend; an index past the end leaves an
/// empty part behind it.
pub fn split_at(a: &Array, indices: &[i32], axis: i32) -> Result<Vec<Array>> {
    // SAFETY: input and indices outlive the call; mlx-c only reads them.
    VectorArray::from_op(|out| unsafe {
        sys::mlx_split_sections(out, a.raw(), indices.as_ptr(), indices.len(), axis, current())
    })
}

/// The entries of `a` at `indices` along `axis`. The indices are not checked against the size:
/// MLX reads outside the array where they leave `-size..size`.
pub fn take(a: &Array, indices: &Array, axis: i32) -> Result<Array> {
    // SAFETY: both inputs outlive the call; mlx-c only reads them.
    Array::from_op(|out| unsafe {
        sys::mlx_take_axis(out, a.raw(), indices.raw(), axis, current())
    })
}

/// For each position, the entry of `a` at the index given there along `axis`. As with [`take`],
/// nothing checks the indices.
pub fn take_along_axis(a: &Array, indices: &Array, axis: i32) -> Result<Array> {
    // SAFETY: both inputs outlive the call; mlx-c only reads them.
    Array::from_op(|out| unsafe {
        sys::mlx_take_along_axis(out, a.raw(), indices.raw(), axis, current())
    })
}

/// `a` with the entries at `indices` along `axis` replaced by `values`. Nothing checks the
/// indices: MLX writes outside the array where they leave `-size..size`.
pub fn put_along_axis(a: &Array, indices: &Array, values: &Array, axis: i32) -> Result<Array> {
    // SAFETY: all inputs outlive the call; mlx-c only reads them.
    Array::from_op(|out| unsafe {
        sys::mlx_put_along_axis(out, a.raw(), indices.raw(), values.raw(), axis, current())
    })
}

/// `a` with `values` added at `indices` along `axis`; repeated indices add up. As with
/// [`put_along_axis`], nothing checks the indices.
pub fn scatter_add_axis(a: &Array, indices: &Array, values: &Array, axis: i32) -> Result<Array> {
    // SAFETY: all inputs outlive the call; mlx-c only reads them.
    Array::from_op(|out| unsafe {
        sys::mlx_scatter_add_axis(out, a.raw(), indices.raw(), values.raw(), axis, current())
    })
}

/// `start, start + 1, …` below `stop`.
pub fn arange(start: i32, stop: i32, dtype: Dtype) -> Result<Array> {
    // SAFETY: takes plain values.
    Array::from_op(|out| unsafe {
        sys::mlx_arange(out, start.into(), stop.into(), 1.0, dtype.raw(), current())
    })
}

/// An array of zeros.
pub fn zeros(shape: &[i32], dtype: Dtype) -> Result<Array> {
    check_size(shape)?;
    // SAFETY: the shape outlives the call; mlx-c copies it.
    Array::from_op(|out| unsafe {
        sys::mlx_zeros(out, shape.as_ptr(), shape.len(), dtype.raw(), current())
    })
}
