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
        assert_eq!(version.to_str(), Ok(env!("MLX_VERSION")));
        // SAFETY: nothing refers to the string any more.
        unsafe { mlx_string_free(text) };
    }
}
