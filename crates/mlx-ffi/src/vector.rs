//! Lists of arrays as mlx-c takes and returns them.

use crate::error::{check, init, take};
use crate::{Array, Result, sys};

/// An owned `mlx_vector_array`.
pub(crate) struct VectorArray(pub(crate) sys::mlx_vector_array);

impl VectorArray {
    /// An empty handle for a call to fill.
    pub(crate) fn empty() -> Self {
        init();
        // SAFETY: creates an empty list.
        VectorArray(unsafe { sys::mlx_vector_array_new() })
    }

    /// A list of the same arrays; the handles are shared, not the data copied.
    pub(crate) fn of(arrays: &[&Array]) -> Result<Self> {
        init();
        let raw: Vec<sys::mlx_array> = arrays.iter().map(|array| array.raw()).collect();
        // SAFETY: the pointer and the length describe `raw`, which lives for the call; mlx-c
        // copies the handles.
        let list = unsafe { sys::mlx_vector_array_new_data(raw.as_ptr(), raw.len()) };
        if list.ctx.is_null() { Err(take()) } else { Ok(VectorArray(list)) }
    }

    pub(crate) fn to_arrays(&self) -> Result<Vec<Array>> {
        // SAFETY: the handle is valid.
        let size = unsafe { sys::mlx_vector_array_size(self.0) };
        (0..size)
            .map(|index| {
                // SAFETY: `index` is within the list.
                Array::from_op(|out| unsafe { sys::mlx_vector_array_get(out, self.0, index) })
            })
            .collect()
    }

    /// Runs `call` on a fresh list and returns what it put there.
    pub(crate) fn from_op(
        call: impl FnOnce(*mut sys::mlx_vector_array) -> std::ffi::c_int,
    ) -> Result<Vec<Array>> {
        let mut list = VectorArray::empty();
        check(call(&mut list.0))?;
        list.to_arrays()
    }
}

impl Drop for VectorArray {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_vector_array_free(self.0) };
    }
}
