//! Products with a matrix of weights.

use std::ffi::CStr;

use super::kernel::{Constant, Launch, Source};
use super::launch::{first, launch_with};
use crate::{Activation, Array, Dtype, Error, QuantMode, Quantized, Result};

/// The most rows of weights that a product takes.
pub(super) const MOST_WEIGHT_ROWS: i32 = 1 << 26;

/// A matrix of weights, `[out, in]`.
#[derive(Clone, Copy, Debug)]
pub enum Weights<'a> {
    /// As it is.
    Dense(&'a Array),
    /// Packed.
    Packed(&'a Quantized),
}

impl Weights<'_> {
    /// Rows and columns.
    pub(super) fn dims(self) -> Result<[i32; 2]> {
        match self {
            Weights::Dense(w) => w.dims(),
            Weights::Packed(w) => {
                let [n, groups] = w.scales.dims()?;
                let columns = groups.checked_mul(w.quantization.group_size);
                let columns = columns.ok_or_else(|| Error::new(format!("too many {groups}")))?;
                Ok([n, columns])
            }
        }
    }

    /// Returns true when the parts of packed weights are of one matrix.
    pub(super) fn is_whole(self) -> bool {
        match self {
            Weights::Dense(_) => true,
            Weights::Packed(w) => w.check().is_ok(),
        }
    }

    /// The type of the weights or of their scales.
    pub(super) fn dtype(self) -> Dtype {
        match self {
            Weights::Dense(w) => w.dtype(),
            Weights::Packed(w) => w.scales.dtype(),
        }
    }

    /// Bits of a weight, and how many share a scale; `None`: of a kind that no kernel here knows.
    pub(super) fn packing(self) -> Option<(i32, i32)> {
        match self {
            Weights::Dense(_) => Some((16, 0)),
            Weights::Packed(w) => {
                let quantization = w.quantization;
                let is_known = quantization.mode == QuantMode::Affine
                    && matches!(quantization.bits, 4 | 8)
                    && w.biases.is_some();
                is_known.then_some((quantization.bits, quantization.group_size))
            }
        }
    }
}

/// Operations before and after a product; each rounds as an operation of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around<'a> {
    /// A root-mean-square norm of x: its weight, `[in]`, and its epsilon.
    pub norm: Option<(&'a Array, f32)>,
    /// Added to the product, `[out]`.
    pub bias: Option<&'a Array>,
    /// The first half of the product is a gate for the second, and half as much comes out.
    pub gate: Option<Activation>,
    /// The residual that the result is added to, of its shape.
    pub onto: Option<&'a Array>,
}

/// How a product is launched: its blocks, their threads, and the bytes of shared memory beside what
/// the kernel names.
pub(super) struct Blocks {
    pub(super) grid: [i32; 2],
    pub(super) threads: i32,
    pub(super) memory: i32,
}

/// The launch of a product for `out` columns, whose first input is x.
pub(super) fn product(
    source: &Source,
    inputs: &[&Array],
    constants: &[(&'static CStr, Constant)],
    out: i32,
    Blocks { grid: [blocks, rows_of_blocks], threads, memory }: Blocks,
) -> Result<Array> {
    let mut shape = inputs[0].shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = out;
    }
    let (grid, block) = ([threads * blocks, rows_of_blocks, 1], [threads, 1, 1]);
    let outputs: [(&[i32], Dtype); 1] = [(&shape, inputs[0].dtype())];
    let all = Launch { grid, block, constants, outputs: &outputs };
    first(launch_with(source, memory, inputs, &all)?)
}
