//! Launches of kernels, which a thread makes once.

use std::cell::RefCell;
use std::ffi::CStr;

use super::kernel::{Kernel, Launch, Source};
use crate::{Array, Error, Result};

thread_local! {
    static NUMBERS: RefCell<Vec<([f32; ON_DEVICE], Array)>> = const { RefCell::new(Vec::new()) };
    static NOTHING: RefCell<Option<Array>> = const { RefCell::new(None) };
    static KERNELS: RefCell<Vec<(&'static CStr, Kernel)>> = const { RefCell::new(Vec::new()) };
}

/// The outputs of a launch of the kernel of `source`, which is made at its first use by a thread.
pub(super) fn launch(
    source: &Source,
    inputs: &[&Array],
    launch: &Launch<'_>,
) -> Result<Vec<Array>> {
    #[cfg(test)]
    if crate::on_cpu()? {
        return super::emulated::launch(source, inputs, launch);
    }
    KERNELS.with_borrow_mut(|kernels| {
        let known = kernels.iter().position(|(name, _)| *name == source.name);
        let at = match known {
            Some(at) => at,
            None => {
                kernels.push((source.name, Kernel::new(source)?));
                kernels.len() - 1
            }
        };
        kernels[at].1.launch(inputs, launch)
    })
}

/// Values of four bytes that an array must have to be in the device's memory: MLX keeps arrays of up to
/// eight bytes in the host's, where each read takes a microsecond.
pub const ON_DEVICE: usize = 4;

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

/// Whole numbers that nothing reads, made at their first use by a thread: what is brought from the host waits for
/// the device.
pub(super) fn nothing() -> Result<Array> {
    NOTHING.with_borrow_mut(|known| {
        let array = match known.take() {
            Some(array) => array,
            None => Array::from_i32(&[0; ON_DEVICE], &[ON_DEVICE as i32])?,
        };
        known.insert(array).share()
    })
}

/// The only output of a launch.
pub(super) fn first(outputs: Vec<Array>) -> Result<Array> {
    outputs.into_iter().next().ok_or_else(|| Error::new("the kernel has no output"))
}
