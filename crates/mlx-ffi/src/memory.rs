//! The memory of MLX's allocator, and its limits. All figures are bytes and concern the process.

use std::sync::OnceLock;

use crate::device_turns::between_evaluations;
use crate::error::{check, init};
use crate::{Device, Result, sys};

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

/// Returns MLX's own choice for the device: [`limit`] before anything set it.
///
/// # Errors
/// Those of MLX.
pub fn first_limit() -> Result<usize> {
    static FIRST: OnceLock<usize> = OnceLock::new();
    match FIRST.get() {
        Some(limit) => Ok(*limit),
        None => limit().map(|limit| *FIRST.get_or_init(|| limit)),
    }
}

/// Sets what [`limit`] returns, and returns the limit before. It guides the allocator and is no
/// wall.
///
/// # Errors
/// Those of MLX.
pub fn set_limit(limit: usize) -> Result<usize> {
    first_limit()?;
    set(sys::mlx_set_memory_limit, limit)
}

/// Sets the freed bytes that the allocator may keep, and returns the limit before.
///
/// # Errors
/// Those of MLX.
pub fn set_cache_limit(limit: usize) -> Result<usize> {
    set(sys::mlx_set_cache_limit, limit)
}

/// Sets how many bytes of arrays stay resident, so that the system does not page them out, and
/// returns the limit before. It is 0 at first: nothing is wired. Without Metal it changes nothing
/// and returns 0.
///
/// # Errors
/// More than [`DeviceInfo::recommended_working_set`](crate::DeviceInfo), or a system that has no
/// wired memory (macOS before 15).
pub fn set_wired_limit(limit: usize) -> Result<usize> {
    set(sys::mlx_set_wired_limit, limit)
}

/// The memory of a CUDA device, as its driver counts it for all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes that no process holds.
    pub free: u64,
    /// Bytes that the device has.
    pub total: u64,
}

/// The device's memory, as the driver reports it; `None` without CUDA, and on a thread that has not
/// used the device yet.
pub fn of_device() -> Option<DeviceMemory> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the out-pointers live for the call.
    unsafe { sys::mlxrs_device_memory(&mut free, &mut total) };
    (total > 0).then_some(DeviceMemory { free: free as u64, total: total as u64 })
}

/// Bytes that this process holds, as those count who hand them out; `None` where nobody tells.
///
/// On a CUDA device, that is what the driver counts for the process: arrays, what the allocator
/// keeps for reuse, kernels, graphs and the driver's own; in a container, where drivers may not
/// know the process, what the pool that arrays come from has taken. Else it is the process's
/// resident memory (Linux) or its footprint (macOS), the program and its files included.
pub fn held(device: Device) -> Option<u64> {
    // SAFETY: takes a plain value.
    let bytes = unsafe { sys::mlxrs_held_memory(device == Device::Gpu) } as u64;
    (bytes > 0).then_some(bytes)
}

/// Bytes of a CUDA device that are taken for arrays, what is free for the next ones included; zero
/// without CUDA.
pub fn pooled() -> u64 {
    // SAFETY: takes nothing.
    unsafe { sys::mlxrs_pooled_memory() as u64 }
}

/// Waits for all that this process has sent to its CUDA device, so that what it uses may be freed,
/// and for evaluations of other threads. A failure is told to whoever asks the device next.
pub fn wait_for_device() {
    let _between = between_evaluations();
    // SAFETY: takes nothing.
    unsafe { sys::mlxrs_wait_for_device() };
}

/// Gives all freed bytes back, those too that a driver would keep until the device is waited for
/// the next time. It waits for the device.
///
/// # Errors
/// Those of MLX.
pub fn give_back() -> Result<()> {
    wait_for_device();
    clear_cache()?;
    let _between = between_evaluations();
    // SAFETY: takes nothing.
    unsafe { sys::mlxrs_trim_memory() };
    Ok(())
}

/// Gives back to the system what the C library keeps of memory that was freed, of all threads. It
/// takes some milliseconds.
pub fn trim_heap() {
    // SAFETY: takes nothing.
    unsafe { sys::mlxrs_trim_heap() };
}

/// Holds so many bytes of a CUDA device back from other processes, instead of those that were held
/// before. Its driver takes memory for a kernel when that is first used; where there is none, MLX
/// ends the process. Letting go of the reserve is what can be done about it.
pub fn reserve(bytes: usize) {
    // SAFETY: takes a plain value.
    unsafe { sys::mlxrs_reserve_memory(bytes) };
}

/// Lets `skip` allocations of this crate's own operations succeed, on any thread, and the `count`
/// ones after them fail as MLX's do where there is no memory. For tests of what comes after.
pub fn fail_allocations(skip: usize, count: usize) {
    // SAFETY: takes plain values.
    unsafe { sys::mlxrs_fail_allocations(skip, count) };
}
