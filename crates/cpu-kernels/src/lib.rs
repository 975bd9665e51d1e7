//! Kernels for CPUs: products of activations and weights, dense or packed, attention, what stands
//! between them, all that attention does in a step, copies of the rows that it reads, and
//! convolutions and norms of pictures.
//!
//! The crate knows nothing of MLX: it works on plain bytes in the layouts that MLX and
//! safetensors use. [`matmul`] checks the sizes once and then runs the fastest kernel that the
//! processor has, on all its cores.
//!
//! **A row of the result does not depend on the other rows.** Each element is summed in an order
//! that only `k`, the kind of the weights and [`Problem::positions`] decide, so a row computed
//! alone and the same row in a batch are equal bit for bit (at one [`Level`]).
//!
//! **Activations are quantised to 8 bits by [`rounded_matmul`] alone.** By [`matmul`] they are not.
//! Where that is faster, it multiplies activations of 16 bits as whole numbers, with a power of two
//! for each group: with AVX2, with AVX-512 and VNNI without BF16, and f16 with both. Of a group,
//! values of bf16 down to 1/128 of the largest are exact then, and values of f16 down to 1/16; what
//! smaller ones lose is little beside the rounding of results.
//!
//! From [`Level::Avx512`] on, codes and fp4/fp8 values are exact in bf16, so products of other
//! 16-bit activations are exact before they are added up in f32, and the scale of a group is
//! applied to its sum; f16 and f32 activations are split into two and three bf16 parts, without a
//! rest. Prompts in bf16, and all that is multiplied as whole numbers, are multiplied in panels of
//! columns, which sum in another order than steps do. [`Level::Amx`] multiplies prompts in bf16 by
//! tiles: there an affine weight is rounded to bf16 after its scale and bias, as MLX unpacks it.
//! Elsewhere both become f32, a packed weight with its scale and bias. An infinite or undefined
//! activation makes its row's results infinite or undefined.
#![allow(unsafe_code, reason = "vector loads and threads that share the output")]

mod activation;
#[cfg(target_arch = "x86_64")]
mod amx;
mod arrange;
mod attention;
#[cfg(target_arch = "x86_64")]
#[allow(clippy::wildcard_imports, reason = "intrinsics are named like nothing else")]
#[allow(clippy::needless_range_loop, reason = "one index walks several arrays of registers")]
mod avx512;
mod convolution;
mod delta;
mod finish;
#[allow(clippy::needless_range_loop, reason = "one index walks several arrays of registers")]
mod floats;
mod functions;
mod gather;
mod kind;
mod level;
mod matmul;
mod output;
mod pictures;
mod pool;
mod prefetch;
mod problem;
#[allow(clippy::needless_range_loop, reason = "one index walks several arrays of registers")]
mod rounded;
mod rows;
#[allow(clippy::needless_range_loop, reason = "one index walks several arrays of registers")]
mod scan;
mod step;
mod values;

pub use activation::{Activation, GELU_CUBE};
pub use arrange::{Arrange, Pieces, Source, Stretch, arrange};
pub use attention::{Attention, Heads, attention, attention_at};
pub use convolution::{Convolution, ConvolutionActivation, convolution, convolution_at};
pub use delta::{Delta, delta, delta_at};
pub use finish::Finish;
pub use floats::{unpack, unpack_at};
pub use gather::{Gather, gather_matmul, rounded_gather_matmul};
pub use level::{Level, set_level};
pub use matmul::{
    finished_matmul, finished_matmul_at, matmul, matmul_at, rounded_matmul, rounded_matmul_at,
};
pub use pictures::{AfterNorm, Conv2d, GroupNorm, conv2d, conv2d_at, group_norm, group_norm_at};
pub use pool::{set_threads, threads};
pub use problem::{Dtype, Error, Packing, Problem, Weights};
pub use rounded::{rounded_dots, rounds_steps};
pub use rows::{Gated, Norm, Rotation, Rows, Sum, gated, gated_at, rows, rows_at, sum, sum_at};
pub use scan::{Scan, scan, scan_at};
pub use step::{Step, step};
