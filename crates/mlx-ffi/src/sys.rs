//! The declarations of mlx-c 0.7.0 and of our shim, as bindgen makes them from the headers.
//!
//! `cargo xtask bindings` regenerates them. MLX's readers of files are
//! left out on purpose: they trust the sizes that a file states.
#![allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    reason = "the names and comments are those of the C headers"
)]
#![allow(dead_code, reason = "whole headers are declared, not only what is called today")]
#![allow(clippy::all, reason = "generated")]

include!("bindings.rs");

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn the_library_is_the_version_that_mlx_c_was_made_for() {
        let mut text = mlx_string { ctx: std::ptr::null_mut() };
        // SAFETY: `text` is an empty handle; the call fills it.
        assert_eq!(unsafe { mlx_version(&mut text) }, 0);
        // SAFETY: a filled string is terminated by a zero and lives until it is freed.
        let version = unsafe { CStr::from_ptr(mlx_string_data(text)) };
        assert_eq!(version.to_str(), Ok("0.32.2"));
        // SAFETY: nothing refers to the string any more.
        unsafe { mlx_string_free(text) };
    }

    #[test]
    fn a_detached_array_keeps_its_value() {
        // SAFETY: makes a scalar and owns it.
        let array = unsafe { mlx_array_new_float(2.5) };
        // SAFETY: the handle is filled.
        assert_eq!(unsafe { mlxrs_array_detach(array) }, 0);
        let mut value = 0.0;
        // SAFETY: the handle is filled and holds one f32.
        assert_eq!(unsafe { mlx_array_item_float32(&mut value, array) }, 0);
        assert_eq!(value, 2.5);
        // SAFETY: nothing refers to the array any more.
        unsafe { mlx_array_free(array) };
    }
}
