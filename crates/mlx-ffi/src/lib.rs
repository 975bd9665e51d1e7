//! A small safe layer over mlx-c: arrays, the operations that language models need, and MLX's
//! memory and streams.
//!
//! Three rules hold everywhere. Every call that can fail returns [`Result`]; MLX's own handler,
//! which ends the process, is replaced before the first call. An [`Array`] stays on the thread
//! that made it (`!Send`), because MLX's streams are thread-local. Operations are lazy: only
//! [`Array::eval`], [`eval_all`], [`async_eval`] and the readers of values wait for the device.
//!
//! ```
//! use mlx_ffi::{Array, ops};
//!
//! let a = Array::from_f32(&[1.0, 2.0], &[2])?;
//! let sum = ops::add(&a, &a)?;
//! assert_eq!(sum.to_vec_f32()?, [2.0, 4.0]);
//! # Ok::<(), mlx_ffi::Error>(())
//! ```

#![allow(unsafe_code, reason = "the one crate that calls C; each block states why it is sound")]

/// The version of mlx-c that the bindings were made from.
pub const MLX_C_VERSION: &str = "0.7.0";

mod array;
#[cfg(test)]
extern crate self as mlx_ffi;

pub mod cpu;
pub mod cuda;
mod custom_kernel;
mod dequantize;
mod device_turns;
pub mod distributed;
#[cfg(any(test, feature = "emulation"))]
mod emulated;
mod error;
mod evaluation;
pub mod fast;
#[cfg(any(test, feature = "emulation"))]
mod graph;
pub mod memory;
pub mod metal;
pub mod ops;
mod pages;
mod quantized;
pub mod random;
mod read;
mod replay;
mod saved;
pub mod step;
mod stream;
mod sys;
mod vector;

pub use array::{Array, Dtype};
pub use cpu_kernels::{Activation, GELU_CUBE};
pub use dequantize::dequantize;
pub use error::{Error, Result};
pub use evaluation::{async_eval, eval_all};
#[cfg(any(test, feature = "emulation"))]
pub use graph::operations;
pub use ops::Indices;
pub use quantized::{QuantMode, Quantization, Quantized, gather_qmm, quantize, quantized_matmul};
pub use replay::{Dispatch, Dispatcher, Recorded, Replay};
pub use saved::saved_order;
pub use stream::{
    Device, DeviceInfo, end_thread, mlx_version, on_cpu, on_cuda, recover, synchronize, use_device,
};
