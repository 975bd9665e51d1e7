//! Launches of kernels, which a thread makes once.

use std::cell::RefCell;
use std::ffi::CStr;
use std::sync::OnceLock;

use super::kernel::{Kernel, Launch, Source};
pub use crate::custom_kernel::ON_DEVICE;
pub(super) use crate::custom_kernel::{first, nothing};
use crate::{Array, Result, sys};

thread_local! {
    static NUMBERS: RefCell<Vec<([f32; ON_DEVICE], Array)>> = const { RefCell::new(Vec::new()) };
    static KERNELS: RefCell<Vec<(&'static CStr, i32, Kernel)>> = const { RefCell::new(Vec::new()) };
}

/// The outputs of a launch of the kernel of `source`, which is made at its first use by a thread.
pub(super) fn launch(
    source: &Source,
    inputs: &[&Array],
    launch: &Launch<'_>,
) -> Result<Vec<Array>> {
    launch_with(source, 0, inputs, launch)
}

/// [`launch`] with so many bytes of shared memory beside what the kernel names. One of the
/// constants tells them, as MLX knows kernels by these.
pub(super) fn launch_with(
    source: &Source,
    memory: i32,
    inputs: &[&Array],
    launch: &Launch<'_>,
) -> Result<Vec<Array>> {
    #[cfg(test)]
    if crate::on_cpu()? {
        return super::emulated::launch(source, inputs, launch);
    }
    KERNELS.with_borrow_mut(|kernels| {
        let is_it = |(name, own, _): &(&CStr, i32, Kernel)| *name == source.name && *own == memory;
        let at = match kernels.iter().position(is_it) {
            Some(at) => at,
            None => {
                kernels.push((source.name, memory, Kernel::new(source, memory)?));
                kernels.len() - 1
            }
        };
        kernels[at].2.launch(inputs, launch)
    })
}

/// Sizes of a device that decide how work is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) multiprocessors: i32,
    /// Bytes of shared memory of a multiprocessor.
    pub(super) of_multiprocessor: i32,
    /// Bytes of it that a block may have.
    pub(super) of_block: i32,
}

impl Sizes {
    /// Those of an H200.
    #[cfg(test)]
    pub(super) const LARGE: Sizes =
        Sizes { multiprocessors: 132, of_multiprocessor: 228 << 10, of_block: 227 << 10 };

    /// Those of the device. Where nobody tells them, those of a large one with as little shared
    /// memory as any has.
    pub(super) fn of_device() -> Sizes {
        // So few that blocks have several rows.
        #[cfg(test)]
        if crate::on_cpu().unwrap_or(false) {
            return Sizes { multiprocessors: 3, of_multiprocessor: 228 << 10, of_block: 227 << 10 };
        }
        const MULTIPROCESSOR_COUNT: i32 = 16;
        const MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: i32 = 81;
        const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: i32 = 97;
        static FOUND: OnceLock<Sizes> = OnceLock::new();
        if let Some(found) = FOUND.get() {
            return *found;
        }
        // SAFETY: asks the driver for a number.
        let number = |attribute| unsafe { sys::mlxrs_device_number(attribute) };
        let found = Sizes {
            multiprocessors: number(MULTIPROCESSOR_COUNT),
            of_multiprocessor: number(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
            of_block: number(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        };
        if found.multiprocessors > 0 && found.of_multiprocessor > 0 && found.of_block > 0 {
            return *FOUND.get_or_init(|| found);
        }
        Sizes { multiprocessors: 132, of_multiprocessor: 100 << 10, of_block: 99 << 10 }
    }
}

/// A number as an array, made at its first use by a thread.
pub(super) fn scalar(value: f32) -> Result<Array> {
    numbers([value; ON_DEVICE])
}

/// Numbers as an array, made at their first use by a thread.
pub(super) fn numbers(values: [f32; ON_DEVICE]) -> Result<Array> {
    NUMBERS.with_borrow_mut(|all| {
        if let Some((_, array)) = all.iter().find(|(known, _)| *known == values) {
            return array.share();
        }
        let array = Array::from_f32(&values, &[ON_DEVICE as i32])?;
        all.push((values, array.share()?));
        Ok(array)
    })
}
