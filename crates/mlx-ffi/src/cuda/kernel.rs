//! A kernel in CUDA C++, which MLX compiles on the machine that runs it.

use std::ffi::{CStr, c_int};

use super::constants::definitions;
pub(super) use crate::custom_kernel::{Constant, Launch};
use crate::custom_kernel::{Kept, Known, Strings, bare, c_string, kernel_config};
use crate::error::{check, init, take};
use crate::stream::current;
use crate::vector::VectorArray;
use crate::{Array, Result, sys};

/// The body of a kernel with the names of its inputs and outputs.
pub(super) struct Source {
    pub(super) name: &'static CStr,
    pub(super) inputs: &'static [&'static CStr],
    pub(super) outputs: &'static [&'static CStr],
    pub(super) body: &'static str,
    /// The text before the body, outside of the function.
    pub(super) header: &'static str,
    /// Inputs may have any strides; otherwise MLX copies those that are not row-major.
    pub(super) takes_strides: bool,
    /// The inputs that it writes into; what it writes is read only through its results.
    pub(super) written: &'static [c_int],
}

/// A kernel that can be launched. MLX keeps what it compiled.
pub(super) struct Kernel {
    raw: sys::mlx_fast_cuda_kernel,
    written: &'static [c_int],
    kept: Kept,
}

impl Kernel {
    /// The kernel of `source`, whose launches ask for so many bytes of shared memory.
    ///
    /// # Errors
    /// An MLX without CUDA.
    pub(super) fn new(source: &Source, memory: c_int) -> Result<Kernel> {
        init();
        let inputs = Strings::of(source.inputs);
        let outputs = Strings::of(source.outputs);
        let (body, header) =
            (c_string(&bare(source.body))?, c_string(&(definitions() + &bare(source.header)))?);
        // SAFETY: names and texts live for the call, which copies them.
        let raw = unsafe {
            sys::mlx_fast_cuda_kernel_new(
                source.name.as_ptr(),
                inputs.0,
                outputs.0,
                body.as_ptr(),
                header.as_ptr(),
                !source.takes_strides,
                memory,
            )
        };
        let kernel = Kernel { raw, written: source.written, kept: Kept::default() };
        if raw.ctx.is_null() { Err(take()) } else { Ok(kernel) }
    }

    /// The outputs of a launch, lazily as those of any operation, then the inputs that it writes
    /// into as they are afterwards.
    ///
    /// # Errors
    /// A stream that is not of a CUDA device.
    pub(super) fn launch(&mut self, inputs: &[&Array], launch: &Launch<'_>) -> Result<Vec<Array>> {
        let made = |inputs: &VectorArray| made(self.raw, self.written, inputs, launch);
        self.kept.apply(inputs, launch, made)
    }
}

/// A launch to be repeated: MLX puts the text of a kernel together whenever it is applied.
fn made(
    kernel: sys::mlx_fast_cuda_kernel,
    written: &[c_int],
    inputs: &VectorArray,
    launch: &Launch<'_>,
) -> Result<Known> {
    let config = Config::of(launch)?;
    let mut outputs = VectorArray::empty();
    // SAFETY: all handles live for the call.
    check(unsafe {
        sys::mlx_fast_cuda_kernel_apply(&mut outputs.0, kernel, inputs.0, config.0, current())
    })?;
    let (written, count) = (written.as_ptr(), written.len());
    // SAFETY: the outputs live for the call; the pointer and the count describe the indices.
    Known::new(|known| unsafe { sys::mlxrs_launch_new(known, outputs.0, written, count) })
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_fast_cuda_kernel_free(self.raw) };
    }
}

kernel_config! {
    of: mlx_fast_cuda_kernel_config,
    new: mlx_fast_cuda_kernel_config_new,
    free: mlx_fast_cuda_kernel_config_free,
    grid: mlx_fast_cuda_kernel_config_set_grid,
    block: mlx_fast_cuda_kernel_config_set_thread_group,
    output: mlx_fast_cuda_kernel_config_add_output_arg,
    int: mlx_fast_cuda_kernel_config_add_template_arg_int,
    dtype: mlx_fast_cuda_kernel_config_add_template_arg_dtype,
    boolean: mlx_fast_cuda_kernel_config_add_template_arg_bool,
}
