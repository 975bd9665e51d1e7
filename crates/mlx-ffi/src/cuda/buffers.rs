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

/// Layers whose buffers are made at once.
const LAYERS: usize = 8;

const OF_LAYERS: Source = Source {
    name: c"mlxrs_buffers_of_layers",
    outputs: &[
        c"buffer_0",
        c"buffer_1",
        c"buffer_2",
        c"buffer_3",
        c"buffer_4",
        c"buffer_5",
        c"buffer_6",
        c"buffer_7",
        c"buffer_8",
        c"buffer_9",
        c"buffer_10",
        c"buffer_11",
        c"buffer_12",
        c"buffer_13",
        c"buffer_14",
        c"buffer_15",
    ],
    ..BUFFERS
};

/// Two arrays of one shape and type, lazily, whose values are whatever their memory held: nothing
/// may read what was not written.
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

/// The [`buffers`] of so many layers, all alike. MLX takes about as long for those of eight layers
/// as for those of one.
///
/// # Errors
/// A device without CUDA.
pub fn buffers_of_layers(shape: &[i32], dtype: Dtype, layers: usize) -> Result<Vec<[Array; 2]>> {
    let outputs = [(shape, dtype); 2 * LAYERS];
    let constants = [(c"T", Constant::Type(dtype))];
    let block = [THREADS, 1, 1];
    let all = Launch { grid: block, block, constants: &constants, outputs: &outputs };
    let mut made = Vec::with_capacity(layers);
    while made.len() + LAYERS <= layers {
        let mut arrays = launch(&OF_LAYERS, &[&scalar(0.0)?], &all)?.into_iter();
        while let (Some(keys), Some(values)) = (arrays.next(), arrays.next()) {
            made.push([keys, values]);
        }
    }
    while made.len() < layers {
        made.push(buffers(shape, dtype)?);
    }
    Ok(made)
}
