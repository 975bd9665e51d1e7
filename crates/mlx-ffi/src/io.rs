//! Reading safetensors files.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::path::Path;

use crate::error::{check, init};
use crate::stream::current;
use crate::{Array, Error, Result, sys};

/// The arrays of a safetensors file by name, read when they are evaluated.
///
/// MLX trusts the file's header: check it first, sizes and offsets in particular.
///
/// # Errors
/// A file that cannot be opened, or a header that MLX does not understand.
pub fn load_safetensors(path: &Path) -> Result<HashMap<String, Array>> {
    init();
    let name = CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| Error::new(format!("{} contains a zero byte", path.display())))?;
    // SAFETY: creates empty maps, owned by the guard below.
    let mut maps =
        unsafe { Maps(sys::mlx_map_string_to_array_new(), sys::mlx_map_string_to_string_new()) };
    // SAFETY: the maps and the name live for the call.
    check(unsafe {
        sys::mlx_load_safetensors(&mut maps.0, &mut maps.1, name.as_ptr(), current())
    })?;
    // SAFETY: the map outlives the iterator.
    let entries = Entries(unsafe { sys::mlx_map_string_to_array_iterator_new(maps.0) });
    let mut arrays = HashMap::new();
    loop {
        let mut key = std::ptr::null();
        let mut done = false;
        let array = Array::from_op(|out| {
            // SAFETY: the out-pointers and the iterator live for the call.
            let status =
                unsafe { sys::mlx_map_string_to_array_iterator_next(&mut key, out, entries.0) };
            // 2 is mlx-c's sign for the end of the map.
            done = status == 2;
            if done { 0 } else { status }
        })?;
        if done {
            return Ok(arrays);
        }
        // SAFETY: the key is a terminated string that belongs to the map.
        let key = unsafe { CStr::from_ptr(key) }.to_string_lossy().into_owned();
        arrays.insert(key, array);
    }
}

/// The arrays and the metadata of a file.
struct Maps(sys::mlx_map_string_to_array, sys::mlx_map_string_to_string);

impl Drop for Maps {
    fn drop(&mut self) {
        // SAFETY: both handles are owned and freed once.
        unsafe {
            sys::mlx_map_string_to_array_free(self.0);
            sys::mlx_map_string_to_string_free(self.1);
        }
    }
}

struct Entries(sys::mlx_map_string_to_array_iterator);

impl Drop for Entries {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_map_string_to_array_iterator_free(self.0) };
    }
}
