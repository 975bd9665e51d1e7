//! How a device computes one operation: MLX's kernels, or our own ones for CPUs and for CUDA.
//! Nothing here knows layers or caches.

mod activation;
mod bf16;
mod choice;
mod columns;
mod experts;
mod fused;
mod matrix;
mod modulated;
mod pictures;
mod products;
mod recurrent;
mod rows;
mod scan;
mod settings;

pub(crate) use activation::{Activation, silu, softplus};
pub(crate) use bf16::Bf16;
pub(crate) use choice::{Activations, Kernels, UNPACKED_FROM};
pub(crate) use columns::Columns;
pub(crate) use experts::Order;
pub(crate) use fused::{GatedNorm, GemvFusion, Norm};
pub(crate) use matrix::Matrix;
pub(crate) use mlx_ffi::cuda::{Branch, ScaledNorm, StreamHeads};
pub(crate) use pictures::leaky_relu;
pub(crate) use rows::lowest;
pub(crate) use settings::Settings;
