//! Products with a matrix of weights.

use std::ffi::CStr;

use super::constants::{THREADS, WEIGHT_ROWS};
use super::kernel::{Constant, Launch, Source};
use super::launch::{first, launch_with};
use crate::{Activation, Array, Dtype, Error, QuantMode, Quantized, Result};

/// The most rows of weights that a product takes.
pub(super) const MOST_WEIGHT_ROWS: i32 = 1 << 26;
/// The most rows of x that blocks of a product of few rows share.
pub const MOST_ROWS: i32 = 32;
/// The most rows of x that are multiplied with packed weights, by so many blocks each time.
pub const MOST_PACKED_ROWS: i32 = 512;

const FEW_ROWS: Source = Source {
    name: c"few_rows",
    inputs: &[c"x", c"w"],
    outputs: &[c"out"],
    body: concat!(
        include_str!("few_rows_begin.cu"),
        include_str!("dense.cu"),
        include_str!("few_rows_end.cu")
    ),
    header: concat!(include_str!("chained.cu"), include_str!("multiply.cu")),
    takes_strides: false,
    written: &[],
};
const FEW_ROWS_PACKED: Source = Source {
    name: c"few_rows_packed",
    inputs: &[c"x", c"w", c"scales", c"biases"],
    outputs: &[c"out"],
    body: concat!(
        include_str!("few_rows_begin.cu"),
        include_str!("packed.cu"),
        include_str!("few_rows_end.cu")
    ),
    header: concat!(include_str!("chained.cu"), include_str!("multiply.cu")),
    takes_strides: false,
    written: &[],
};

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

    /// Whether the parts of packed weights are of one matrix.
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

/// What is done before and after a product; each step rounds as an operation of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around<'a> {
    /// A root-mean-square norm of x: its weight, `[in]`, and its epsilon.
    pub norm: Option<(&'a Array, f32)>,
    /// What is added to the product, `[out]`.
    pub bias: Option<&'a Array>,
    /// The first half of the product is a gate for the second, and half as much comes out.
    pub gate: Option<Activation>,
    /// What the result is added to, of its shape.
    pub onto: Option<&'a Array>,
}

/// Whether [`few_rows`] multiplies `x` with such weights.
pub fn takes_few_rows(x: &Array, w: Weights<'_>) -> bool {
    let Ok([n, k]) = w.dims() else { return false };
    let (is_known, most_rows) = match w.packing() {
        Some((16, _)) => (k % 32 == 0, MOST_ROWS),
        Some((4, group_size)) => (matches!(group_size, 64 | 128), MOST_PACKED_ROWS),
        _ => (false, 0),
    };
    let types_fit = x.dtype() == Dtype::Bf16 && w.dtype() == Dtype::Bf16;
    let fits = (1..=MOST_WEIGHT_ROWS).contains(&n)
        && x.shape().last() == Some(&k)
        && k > 0
        && (1..=most_rows).contains(&x.rows());
    is_known && types_fit && fits && w.is_whole()
}

/// `x wᵀ` for up to [`MOST_ROWS`] rows of x, `[…, in]`, or [`MOST_PACKED_ROWS`] with packed weights:
/// `[…, out]`.
///
/// # Errors
/// What [`takes_few_rows`] does not take; a device without CUDA.
pub fn few_rows(x: &Array, w: Weights<'_>) -> Result<Array> {
    if !takes_few_rows(x, w) {
        return Err(Error::new(format!("no product of few rows for {x:?} and {w:?}")));
    }
    let ([n, _], rows) = (w.dims()?, x.rows());
    // Rows of x are multiplied by eights.
    let tiles = [1, 2, 4].into_iter().find(|tiles| rows <= tiles * 8).unwrap_or(4);
    let grid = [(n + WEIGHT_ROWS - 1) / WEIGHT_ROWS, (rows + tiles * 8 - 1) / (tiles * 8)];
    let blocks = Blocks { grid, threads: THREADS, memory: 0 };
    let constants = |group_size| {
        [
            (c"T", Constant::Type(x.dtype())),
            (c"TILES", Constant::Int(tiles)),
            (c"GROUP_SIZE", Constant::Int(group_size)),
        ]
    };
    match w {
        Weights::Dense(w) => product(&FEW_ROWS, &[x, w], &constants(0), n, blocks),
        Weights::Packed(w) => {
            let biases = w.biases.as_ref().unwrap_or(x);
            let inputs = [x, &w.weight, &w.scales, biases];
            let constants = constants(w.quantization.group_size);
            product(&FEW_ROWS_PACKED, &inputs, &constants, n, blocks)
        }
    }
}

/// How a product is launched: its blocks, their threads, and the bytes of shared memory beside what the kernel names.
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
