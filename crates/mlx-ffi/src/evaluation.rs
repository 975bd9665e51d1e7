//! Computing several arrays at once.

use crate::array::settle;
use crate::device_turns::evaluating;
use crate::error::check;
use crate::vector::VectorArray;
use crate::{Array, Result, sys};

/// Computes all values and waits for them.
///
/// # Errors
/// As [`Array::eval`].
pub fn eval_all<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    let list = VectorArray::of(&arrays.into_iter().collect::<Vec<_>>())?;
    let _evaluating = evaluating();
    // SAFETY: the list lives for the call.
    settle(unsafe { sys::mlx_eval(list.0) })
}

/// Starts computing all values and returns at once.
///
/// # Errors
/// A failure while the operations were queued. What fails on the device after that is the error of
/// the next call on this thread that waits, whichever array it waits for; see [`Array::eval`].
pub fn async_eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    let arrays: Vec<&Array> = arrays.into_iter().collect();
    if arrays.is_empty() {
        return Ok(());
    }
    let list = VectorArray::of(&arrays)?;
    let _evaluating = evaluating();
    // SAFETY: the list lives for the call.
    settle(unsafe { sys::mlx_async_eval(list.0) })
}

impl Array {
    /// Lets go of the operation that computes the value and of its inputs, whose buffers it would
    /// keep until the value is there. A value that nobody has asked for is sent to its device
    /// first; nothing waits for it.
    ///
    /// MLX does so by itself as it evaluates. To say it costs nothing then, and holds where an
    /// array is kept for long.
    ///
    /// # Errors
    /// As [`async_eval`].
    pub fn detach(&self) -> Result<()> {
        async_eval([self])?;
        // SAFETY: the handle is not empty, and was sent to its device.
        check(unsafe { sys::mlxrs_array_detach(self.raw()) })
    }
}
