//! Errors of MLX as values: our handler stores the message, the failed call picks it up.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::sync::Once;

use crate::sys;

/// An error of MLX, or of a layer above it, as a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    message: String,
}

/// The result of every call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of a layer above that must pass where MLX's do.
    pub fn new(message: impl Into<String>) -> Self {
        Error { message: message.into() }
    }

    /// Returns true when MLX had no memory for a request; a smaller one may succeed.
    pub fn is_out_of_memory(&self) -> bool {
        // What MLX, CUDA, its libraries and the system say; the codes are cuBLAS's and mean that
        // too.
        const SAYINGS: [&str; 7] = [
            "out of memory",
            "Unable to allocate",
            "there is no memory for",
            "ALLOC_FAILED",
            "bad_alloc",
            "cublasLtCreate(&storage.handle) failed with code: 1.",
            "Insufficient Memory",
        ];
        let is_cublas = self.message.starts_with("cublas");
        SAYINGS.iter().any(|saying| self.message.contains(saying))
            || is_cublas && self.message.ends_with("failed with code: 3.")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Replaces MLX's error handler, which ends the process. Every entry into mlx-c passes here first.
pub(crate) fn init() {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: the handler is a plain function that lives as long as the process and does not
        // unwind; it takes no data, so there is nothing to free.
        unsafe { sys::mlx_set_error_handler(Some(store), std::ptr::null_mut(), None) };
        // SAFETY: takes nothing and does nothing; what it is linked with has run already.
        unsafe { sys::mlxrs_environment() };
    });
}

extern "C" fn store(message: *const c_char, _data: *mut c_void) {
    if message.is_null() {
        return;
    }
    // SAFETY: mlx-c hands over a terminated string that lives for the call.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    // mlx-c appends ` at FILE:LINE` of its own source, which tells a user nothing.
    let text = match text.rsplit_once(" at ") {
        Some((what, place)) if place.contains(".cpp:") || place.contains(".h:") => what.to_owned(),
        _ => text.into_owned(),
    };
    // The handler may run while the thread's locals are torn down: then nobody reads it.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some(text));
}

/// The stored message, which is cleared, or a text that says that there was none.
pub(crate) fn take() -> Error {
    // A call that fails while the thread's locals are torn down still gets the general text.
    let message = LAST.try_with(|last| last.borrow_mut().take()).ok().flatten();
    Error::new(message.unwrap_or_else(|| "MLX failed without saying why".to_owned()))
}

/// Turns the status of a call into a result: 0 is success.
pub(crate) fn check(status: c_int) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(take()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_without_a_message_still_has_a_text() {
        assert_eq!(check(1).unwrap_err().to_string(), "MLX failed without saying why");
    }

    #[test]
    fn a_message_is_read_once_and_loses_the_source_position() {
        init();
        store(c"bad shapes at /src/mlx/c/ops.cpp:12".as_ptr(), std::ptr::null_mut());
        assert_eq!(check(1).unwrap_err().to_string(), "bad shapes");
        assert_eq!(check(1).unwrap_err().to_string(), "MLX failed without saying why");
    }

    #[test]
    fn memory_that_is_not_there_is_told_from_other_failures() {
        let is_memory = |message: &str| Error::new(message).is_out_of_memory();
        assert!(is_memory("cudaMallocAsync(&data, size, stream) failed: out of memory"));
        assert!(is_memory("[malloc] Unable to allocate 4096 bytes."));
        assert!(is_memory("cublasLtMatmul( handle_, a) failed with code: 3."));
        assert!(is_memory("std::bad_alloc"));
        assert!(!is_memory("cublasLtMatmul( handle_, a) failed with code: 13."));
        assert!(!is_memory("[matmul] shapes (2,3) and (4,5) do not fit"));
    }

    #[test]
    fn a_message_that_speaks_of_a_place_keeps_it() {
        store(c"no file at models/x".as_ptr(), std::ptr::null_mut());
        assert_eq!(take().to_string(), "no file at models/x");
    }
}
