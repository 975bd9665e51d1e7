//! The graph of operations that MLX is still to run.

use std::ffi::CStr;

use crate::error::{check, init};
use crate::vector::VectorArray;
use crate::{Array, Result, sys};

/// The names of the operations that the values of `arrays` still wait for, each once.
///
/// # Errors
/// Those of MLX.
pub fn operations<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<Vec<String>> {
    init();
    let list = VectorArray::of(&arrays.into_iter().collect::<Vec<_>>())?;
    // SAFETY: makes an empty text.
    let mut names = Names(unsafe { sys::mlx_string_new() });
    // SAFETY: the handles live for the call.
    check(unsafe { sys::mlxrs_operations(&mut names.0, list.0) })?;
    // SAFETY: the text ends with a zero and lives as long as its handle.
    let text = unsafe { CStr::from_ptr(sys::mlx_string_data(names.0)) };
    Ok(text.to_string_lossy().lines().map(str::to_owned).collect())
}

struct Names(sys::mlx_string);

impl Drop for Names {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_string_free(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::operations;
    use crate::{Array, Device, ops, use_device};

    #[test]
    fn an_operation_counts_once_and_not_after_it_has_run() {
        use_device(Device::Cpu).expect("a CPU");
        let x = Array::from_f32(&[1.0, 2.0], &[2]).expect("values");
        let twice = ops::add(&x, &x).expect("a sum");
        let both = [ops::multiply(&twice, &twice), ops::negative(&twice)];
        let both = both.map(|array| array.expect("an operation"));
        let mut found = operations(&both).expect("names");
        found.sort();
        assert_eq!(found, ["Add", "Multiply", "Negative"]);
        twice.eval().expect("values");
        assert_eq!(operations(&both).expect("names").len(), 2);
    }
}
