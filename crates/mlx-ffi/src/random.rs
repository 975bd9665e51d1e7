//! Random draws that depend on an explicit key alone.

use crate::array::check_size;
use crate::stream::current;
use crate::{Array, Dtype, Indices, Result, sys};

/// The key of `seed`: equal seeds draw equal values.
///
/// # Errors
/// Those of MLX.
pub fn key(seed: u64) -> Result<Array> {
    // SAFETY: takes a plain value.
    Array::from_op(|out| unsafe { sys::mlx_random_key(out, seed) })
}

/// Two independent keys from one.
///
/// # Errors
/// Those of MLX.
pub fn split(key: &Array) -> Result<(Array, Array)> {
    // SAFETY: both out-pointers hold empty handles; the key outlives the call.
    Array::pair_from_op(|first, second| unsafe {
        sys::mlx_random_split(first, second, key.raw(), current())
    })
}

/// An index along `axis`, drawn with the probabilities `softmax(logits)`, as U32.
///
/// # Errors
/// Those of MLX.
pub fn categorical(logits: &Array, axis: i32, key: &Array) -> Result<Indices> {
    // SAFETY: both inputs outlive the call; mlx-c only reads them.
    let drawn = Array::from_op(|out| unsafe {
        sys::mlx_random_categorical(out, logits.raw(), axis, key.raw(), current())
    })?;
    Indices::along(logits, axis, drawn)
}

/// Values between 0 and 1, 1 left out, f32.
///
/// # Errors
/// Those of MLX.
pub fn uniform(shape: &[i32], key: &Array) -> Result<Array> {
    check_size(shape)?;
    let (low, high) = (Array::scalar(0.0, Dtype::F32)?, Array::scalar(1.0, Dtype::F32)?);
    // SAFETY: all inputs outlive the call; mlx-c only reads them.
    Array::from_op(|out| unsafe {
        sys::mlx_random_uniform(
            out,
            low.raw(),
            high.raw(),
            shape.as_ptr(),
            shape.len(),
            Dtype::F32.raw(),
            key.raw(),
            current(),
        )
    })
}

/// Random bits, U32.
///
/// # Errors
/// Those of MLX.
pub fn bits(shape: &[i32], key: &Array) -> Result<Array> {
    check_size(shape)?;
    let width = Dtype::U32.size() as i32;
    // SAFETY: shape and key outlive the call; mlx-c only reads them.
    Array::from_op(|out| unsafe {
        sys::mlx_random_bits(out, shape.as_ptr(), shape.len(), width, key.raw(), current())
    })
}

/// Values with mean 0 and standard deviation 1.
///
/// # Errors
/// Those of MLX.
pub fn normal(shape: &[i32], dtype: Dtype, key: &Array) -> Result<Array> {
    check_size(shape)?;
    // SAFETY: shape and key outlive the call; mlx-c only reads them.
    Array::from_op(|out| unsafe {
        sys::mlx_random_normal(
            out,
            shape.as_ptr(),
            shape.len(),
            dtype.raw(),
            0.0,
            1.0,
            key.raw(),
            current(),
        )
    })
}
