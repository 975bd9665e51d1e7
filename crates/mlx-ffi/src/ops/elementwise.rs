//! Operations on each element, or on each pair of elements.

use std::ffi::c_int;

use crate::stream::current;
use crate::{Array, Dtype, Error, Result, sys};

type Unary = unsafe extern "C" fn(*mut sys::mlx_array, sys::mlx_array, sys::mlx_stream) -> c_int;
type Binary = unsafe extern "C" fn(
    *mut sys::mlx_array,
    sys::mlx_array,
    sys::mlx_array,
    sys::mlx_stream,
) -> c_int;

fn unary(op: Unary, a: &Array) -> Result<Array> {
    // SAFETY: `op` is one of mlx-c's below, which only reads its input; that outlives the call.
    Array::from_op(|out| unsafe { op(out, a.raw(), current()) })
}

pub(super) fn binary(op: Binary, a: &Array, b: &Array) -> Result<Array> {
    // SAFETY: `op` is one of mlx-c's below, which only reads its inputs; both outlive the call.
    Array::from_op(|out| unsafe { op(out, a.raw(), b.raw(), current()) })
}

/// The inverse of the error function of `a`.
pub fn erfinv(a: &Array) -> Result<Array> {
    unary(sys::mlx_erfinv, a)
}

/// The error function of `a`.
pub fn erf(a: &Array) -> Result<Array> {
    unary(sys::mlx_erf, a)
}

/// The square root of `a`.
pub fn sqrt(a: &Array) -> Result<Array> {
    unary(sys::mlx_sqrt, a)
}

/// `-a`.
pub fn negative(a: &Array) -> Result<Array> {
    unary(sys::mlx_negative, a)
}

/// `e^a`.
pub fn exp(a: &Array) -> Result<Array> {
    unary(sys::mlx_exp, a)
}

/// The sine of `a`.
pub fn sin(a: &Array) -> Result<Array> {
    unary(sys::mlx_sin, a)
}

/// The hyperbolic tangent.
pub fn tanh(a: &Array) -> Result<Array> {
    unary(sys::mlx_tanh, a)
}

/// `1 / (1 + e^-a)`.
pub fn sigmoid(a: &Array) -> Result<Array> {
    unary(sys::mlx_sigmoid, a)
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

/// The values of the bytes `a` as floats of 8 bits (e4m3), in `dtype`.
///
/// # Errors
/// An array of another type than bytes; a `dtype` that is no float.
pub fn from_fp8(a: &Array, dtype: Dtype) -> Result<Array> {
    if a.dtype() != Dtype::U8 || !dtype.is_float() {
        return Err(Error::new(format!("{a:?} are no bytes of floats, or {dtype:?} is no float")));
    }
    // SAFETY: the input outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe { sys::mlx_from_fp8(out, a.raw(), dtype.raw(), current()) })
}

/// Converts the values to another type.
pub fn astype(a: &Array, dtype: Dtype) -> Result<Array> {
    // SAFETY: the input outlives the call; mlx-c only reads it.
    Array::from_op(|out| unsafe { sys::mlx_astype(out, a.raw(), dtype.raw(), current()) })
}
