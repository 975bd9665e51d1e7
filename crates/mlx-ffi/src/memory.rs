//! What MLX's allocator holds, and its limits. All figures are bytes and concern the process.

use crate::error::{check, init};
use crate::{Result, sys};

type Getter = unsafe extern "C" fn(*mut usize) -> std::ffi::c_int;
type Setter = unsafe extern "C" fn(*mut usize, usize) -> std::ffi::c_int;

fn get(getter: Getter) -> Result<usize> {
    init();
    let mut bytes = 0;
    // SAFETY: `getter` is one of mlx-c's below; the out-pointer lives for the call.
    check(unsafe { getter(&mut bytes) })?;
    Ok(bytes)
}

fn set(setter: Setter, limit: usize) -> Result<usize> {
    init();
    let mut previous = 0;
    // SAFETY: `setter` is one of mlx-c's below; the out-pointer lives for the call.
    check(unsafe { setter(&mut previous, limit) })?;
    Ok(previous)
}

/// Bytes in use by arrays.
///
/// # Errors
/// Those of MLX.
pub fn active() -> Result<usize> {
    get(sys::mlx_get_active_memory)
}

/// Freed bytes that the allocator keeps for reuse.
///
/// # Errors
/// Those of MLX.
pub fn cached() -> Result<usize> {
    get(sys::mlx_get_cache_memory)
}

/// The most bytes in use since [`reset_peak`].
///
/// # Errors
/// Those of MLX.
pub fn peak() -> Result<usize> {
    get(sys::mlx_get_peak_memory)
}

/// Starts the measuring of [`peak`] anew.
///
/// # Errors
/// Those of MLX.
pub fn reset_peak() -> Result<()> {
    init();
    // SAFETY: takes nothing.
    check(unsafe { sys::mlx_reset_peak_memory() })
}

/// Gives the freed bytes back to the system.
///
/// # Errors
/// Those of MLX.
pub fn clear_cache() -> Result<()> {
    init();
    // SAFETY: takes nothing.
    check(unsafe { sys::mlx_clear_cache() })
}

/// The bytes that MLX tries to stay within.
///
/// # Errors
/// Those of MLX.
pub fn limit() -> Result<usize> {
    get(sys::mlx_get_memory_limit)
}

/// Sets what [`limit`] returns, and returns the limit before. It guides the allocator and is no
/// wall.
///
/// # Errors
/// Those of MLX.
pub fn set_limit(limit: usize) -> Result<usize> {
    set(sys::mlx_set_memory_limit, limit)
}

/// Sets the freed bytes that the allocator may keep, and returns the limit before.
///
/// # Errors
/// Those of MLX.
pub fn set_cache_limit(limit: usize) -> Result<usize> {
    set(sys::mlx_set_cache_limit, limit)
}

/// Sets the bytes that stay resident on the GPU (Metal only), and returns the limit before.
///
/// # Errors
/// Those of MLX, such as a limit above the system's.
pub fn set_wired_limit(limit: usize) -> Result<usize> {
    set(sys::mlx_set_wired_limit, limit)
}
