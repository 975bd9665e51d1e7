//! The device of tests that need CUDA.

use mlx_ffi::{Device, use_device};

/// Uses the CUDA device on this thread; there must be one.
pub fn use_cuda() {
    use_device(Device::Gpu).expect("a GPU that MLX uses");
    assert_eq!(Device::Gpu.info().expect("a device").backend, "cuda");
}
