//! How a device computes one operation: MLX's kernels, or our own ones for CPUs and for CUDA.
//! Nothing here knows layers or caches.

mod activation;
mod bf16;
mod channel_scan;
mod choice;
mod columns;
mod experts;
mod fused;
mod linear_recurrence;
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
pub(crate) use channel_scan::{ChannelScan, channel_scan};
pub(crate) use choice::{Activations, Kernels, UNPACKED_FROM};
pub(crate) use columns::Columns;
pub(crate) use experts::Order;
pub(crate) use fused::{GatedNorm, GemvFusion, Norm};
pub(crate) use linear_recurrence::linear_recurrence;
pub(crate) use matrix::Matrix;
pub(crate) use mlx_ffi::cuda::{Branch, ScaledNorm, StreamHeads};
pub(crate) use pictures::leaky_relu;
pub(crate) use recurrent::counting;
pub(crate) use rows::lowest;
pub(crate) use settings::Settings;
