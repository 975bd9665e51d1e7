//! How MLX lays tensors out in a file.

use std::ffi::{CString, c_char};

use crate::error::check;
use crate::{Error, Result, sys};

/// The order in which MLX writes tensors into a safetensors file that it is given as `names`, one
/// after the other: indices into `names`.
///
/// It is that of the standard library's hash map, so files are equal where the libraries are.
///
/// # Errors
/// A name with a zero byte, or two that are equal.
pub fn saved_order(names: &[&str]) -> Result<Vec<usize>> {
    let texts = names.iter().map(|name| CString::new(*name)).collect::<Result<Vec<_>, _>>();
    let texts = texts.map_err(|error| Error::new(format!("a tensor's name: {error}")))?;
    let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
    let mut order = vec![usize::MAX; names.len()];
    // SAFETY: both have `names.len()` elements, and the texts outlive the call.
    check(unsafe { sys::mlxrs_map_order(pointers.as_ptr(), names.len(), order.as_mut_ptr()) })?;
    if order.contains(&usize::MAX) {
        return Err(Error::new("two tensors have one name"));
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_one_place() {
        let names: Vec<String> = (0..300).map(|index| format!("model.layers.{index}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut order = saved_order(&names).expect("names without zeros");
        order.sort();
        assert_eq!(order, (0..300).collect::<Vec<_>>());
    }

    #[test]
    fn names_that_no_map_can_hold_are_refused() {
        assert!(saved_order(&["a", "a"]).is_err());
        assert!(saved_order(&["a\0b"]).is_err());
    }
}
