//! Reading safetensors files.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::path::Path;

use crate::error::{check, init};
use crate::stream::current;
use crate::{Array, Error, Result, sys};

/// The arrays of a safetensors file by name, read when they are evaluated.
///
/// MLX trusts much of the file's header: check it first, sizes and offsets in particular.
///
/// # Errors
/// A file that cannot be opened or is shorter than its header says, or a header that MLX does not
/// understand.
pub fn load_safetensors(path: &Path) -> Result<HashMap<String, Array>> {
    init();
    let name = CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| Error::new(format!("{} contains a zero byte", path.display())))?;
    // SAFETY: creates an empty map, owned by the guard.
    let mut tensors = Tensors(unsafe { sys::mlx_map_string_to_array_new() });
    // SAFETY: creates an empty map, owned by the guard.
    let mut metadata = Metadata(unsafe { sys::mlx_map_string_to_string_new() });
    // SAFETY: the maps and the name live for the call.
    check(unsafe {
        sys::mlx_load_safetensors(&mut tensors.0, &mut metadata.0, name.as_ptr(), current())
    })?;
    // SAFETY: the map is filled, and outlives the iterator.
    let entries = Entries(unsafe { sys::mlx_map_string_to_array_iterator_new(tensors.0) });
    let mut arrays = HashMap::new();
    loop {
        let mut key = std::ptr::null();
        let mut status = 0;
        let entry = Array::from_op(|out| {
            // SAFETY: the out-pointers and the iterator live for the call.
            status =
                unsafe { sys::mlx_map_string_to_array_iterator_next(&mut key, out, entries.0) };
            status
        });
        // mlx-c's sign for the end of the map.
        if status == 2 {
            return Ok(arrays);
        }
        let array = entry?;
        // SAFETY: the key is a terminated string that belongs to the map.
        let key = unsafe { CStr::from_ptr(key) }.to_string_lossy().into_owned();
        arrays.insert(key, array);
    }
}

struct Tensors(sys::mlx_map_string_to_array);

impl Drop for Tensors {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_map_string_to_array_free(self.0) };
    }
}

struct Metadata(sys::mlx_map_string_to_string);

impl Drop for Metadata {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_map_string_to_string_free(self.0) };
    }
}

struct Entries(sys::mlx_map_string_to_array_iterator);

impl Drop for Entries {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_map_string_to_array_iterator_free(self.0) };
    }
}
