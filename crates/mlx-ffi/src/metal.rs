//! Kernels of our own for Metal, as operations of MLX's graph, for what MLX makes of many.
//!
//! Each function gives `None` where its kernel does not know the operands: then MLX's operations
//! compute them. Kernels need SIMD groups of 32 lanes and no matrix units, so that they run on
//! each Apple GPU from the M1 on. They name no pointer: what is small lies in another memory
//! than what is large, and an index works for both.

#[cfg(any(test, feature = "emulation"))]
mod emulated;
mod kernel;
mod recurrent;
mod rows;
mod text;

pub use recurrent::{convolution, delta, scan};
pub use rows::{gated, norm_and_gate};

/// True where the library was built to run these kernels on a CPU, for tests.
pub const IS_EMULATED: bool = cfg!(any(test, feature = "emulation"));
