//! Kernels of our own for CUDA, as operations of MLX's graph: products of few rows, and what a layer does
//! with one new position.
//!
//! MLX's products of one row reach half of the memory's speed there, those of 2 to 32 rows a third,
//! packed ones less; it has no kernel for one query of each row over keys that a mask hides; and each
//! operation costs the processor more time than the device. So a layer's step is few operations here. What
//! a row gives depends on the other rows only by the order in which sums are made.

use std::cell::RefCell;
use std::ffi::CStr;

use crate::{Array, Dtype, Error, Result};

mod attention;
mod kernel;
mod product;
mod rows;

pub use attention::{attends, step_attention};
use kernel::{Kernel, Launch, Source};
pub use product::{
    Around, Gate, MOST_ROWS, Weights, few_rows, one_row, takes_few_rows, takes_one_row,
};
pub use rows::{gated, residual, takes_gate, takes_residual};

/// Threads of a block.
const THREADS: i32 = 256;

thread_local! {
    static SCALARS: RefCell<Vec<(f32, Array)>> = const { RefCell::new(Vec::new()) };
    static KERNELS: RefCell<Vec<(&'static CStr, Kernel)>> = const { RefCell::new(Vec::new()) };
}

/// The outputs of a launch of the kernel of `source`, which is made at its first use by a thread.
fn launch(source: &Source, inputs: &[&Array], launch: &Launch<'_>) -> Result<Vec<Array>> {
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
fn scalar(value: f32) -> Result<Array> {
    SCALARS.with_borrow_mut(|scalars| {
        if let Some((_, array)) = scalars.iter().find(|(known, _)| *known == value) {
            return array.share();
        }
        let array = Array::from_f32(&[value; ON_DEVICE], &[ON_DEVICE as i32])?;
        scalars.push((value, array.share()?));
        Ok(array)
    })
}

fn first(outputs: Vec<Array>) -> Result<Array> {
    outputs.into_iter().next().ok_or_else(|| Error::new("the kernel has no output"))
}

/// Whether kernels here compute in that type.
fn is_half(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Bf16 | Dtype::F16)
}
