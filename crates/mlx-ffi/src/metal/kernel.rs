//! A kernel in Metal's language, which MLX compiles on the machine that runs it.

use std::cell::RefCell;
use std::ffi::CStr;

use super::text::{Source, header};
use crate::custom_kernel::{Constant, Kept, Known, Launch, Strings, bare, c_string, kernel_config};
use crate::error::{check, init, take};
use crate::stream::current;
use crate::vector::VectorArray;
use crate::{Array, Result, sys};

thread_local! {
    static KERNELS: RefCell<Vec<(&'static CStr, Kernel)>> = const { RefCell::new(Vec::new()) };
}

/// The outputs of a launch of the kernel of `source`, which is made at its first use by a thread.
///
/// # Errors
/// A stream that is not of a Metal device.
pub(super) fn launch(
    source: &Source,
    inputs: &[&Array],
    launch: &Launch<'_>,
) -> Result<Vec<Array>> {
    #[cfg(any(test, feature = "emulation"))]
    if crate::on_cpu()? {
        return super::emulated::launch(source, inputs, launch);
    }
    KERNELS.with_borrow_mut(|kernels| {
        let at = match kernels.iter().position(|(name, _)| *name == source.name) {
            Some(at) => at,
            None => {
                kernels.push((source.name, Kernel::new(source)?));
                kernels.len() - 1
            }
        };
        kernels[at].1.launch(inputs, launch)
    })
}

/// A kernel that can be launched. MLX keeps what it compiled.
struct Kernel {
    raw: sys::mlx_fast_metal_kernel,
    kept: Kept,
}

impl Kernel {
    fn new(source: &Source) -> Result<Kernel> {
        init();
        let (inputs, outputs) = (Strings::of(source.inputs), Strings::of(source.outputs));
        let (body, header) = (c_string(&bare(source.body))?, c_string(&header())?);
        let (is_row_major, has_atomic_outputs) = (true, false);
        // SAFETY: names and texts live for the call, which copies them.
        let raw = unsafe {
            sys::mlx_fast_metal_kernel_new(
                source.name.as_ptr(),
                inputs.0,
                outputs.0,
                body.as_ptr(),
                header.as_ptr(),
                is_row_major,
                has_atomic_outputs,
            )
        };
        let kernel = Kernel { raw, kept: Kept::default() };
        if raw.ctx.is_null() { Err(take()) } else { Ok(kernel) }
    }

    fn launch(&mut self, inputs: &[&Array], launch: &Launch<'_>) -> Result<Vec<Array>> {
        let raw = self.raw;
        self.kept.apply(inputs, launch, |inputs| {
            let config = Config::of(launch)?;
            let mut outputs = VectorArray::empty();
            // SAFETY: all handles live for the call.
            check(unsafe {
                sys::mlx_fast_metal_kernel_apply(&mut outputs.0, raw, inputs.0, config.0, current())
            })?;
            // SAFETY: the outputs live for the call.
            Known::new(|known| unsafe { sys::mlxrs_launch_of(known, outputs.0) })
        })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_fast_metal_kernel_free(self.raw) };
    }
}

kernel_config! {
    of: mlx_fast_metal_kernel_config,
    new: mlx_fast_metal_kernel_config_new,
    free: mlx_fast_metal_kernel_config_free,
    grid: mlx_fast_metal_kernel_config_set_grid,
    block: mlx_fast_metal_kernel_config_set_thread_group,
    output: mlx_fast_metal_kernel_config_add_output_arg,
    int: mlx_fast_metal_kernel_config_add_template_arg_int,
    dtype: mlx_fast_metal_kernel_config_add_template_arg_dtype,
    boolean: mlx_fast_metal_kernel_config_add_template_arg_bool,
}
