//! The device of tests that need CUDA.

use mlx_ffi::{Device, use_device};

/// Returns true in tests of the library itself, in which a processor runs kernels.
pub fn is_emulated() -> bool {
    module_path!().starts_with("mlx_ffi::")
}

/// Of all that a test goes through, the first ones where a processor runs kernels: as many as take
/// it a few seconds.
pub fn some<T>(all: &[T], on_processor: usize) -> &[T] {
    if is_emulated() { &all[..on_processor] } else { all }
}

/// Uses the CUDA device on this thread; there must be one.
pub fn use_cuda() {
    if is_emulated() {
        return use_device(Device::Cpu).expect("a CPU");
    }
    use_device(Device::Gpu).expect("a GPU that MLX uses");
    assert_eq!(Device::Gpu.info().expect("a device").backend, "cuda");
}
