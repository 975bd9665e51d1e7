//! Memory for what kernels write in place.

use super::constants::THREADS;
use super::kernel::{Constant, Launch, Source};
use super::launch::{launch, scalar};
use crate::{Array, Dtype, Error, Result};

const BUFFERS: Source = Source {
    // The shim knows it by this name.
    name: c"mlxrs_buffers",
    inputs: &[c"nothing"],
    outputs: &[c"keys", c"values"],
    body: "",
    header: "",
    takes_strides: false,
    written: &[],
};

/// Two arrays of one shape and type, lazily, whose values are whatever their memory held: nothing may read
/// what was not written.
///
/// # Errors
/// A device without CUDA.
pub fn buffers(shape: &[i32], dtype: Dtype) -> Result<[Array; 2]> {
    let outputs = [(shape, dtype); 2];
    let constants = [(c"T", Constant::Type(dtype))];
    let block = [THREADS, 1, 1];
    let all = Launch { grid: block, block, constants: &constants, outputs: &outputs };
    <[Array; 2]>::try_from(launch(&BUFFERS, &[&scalar(0.0)?], &all)?)
        .map_err(|found| Error::new(format!("{} buffers", found.len())))
}
