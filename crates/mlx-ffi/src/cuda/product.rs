//! Products with a matrix of weights.

use std::ffi::CStr;

use super::kernel::{Constant, Launch, Source};
use super::{THREADS, first, is_half, launch, scalar};
use crate::{Array, Dtype, Error, QuantMode, Quantized, Result};

/// Warps of a block.
const WARPS: i32 = 8;
/// Blocks that a large device runs at once where a row of x is normed first or unpacked weights are a gate:
/// three for each of its multiprocessors, by the registers that they take. The blocks of a second round would leave most of it
/// idle.
const BLOCKS: i32 = 396;
/// Blocks that run at once where there is neither norm nor gate: four on each multiprocessor.
const PLAIN_BLOCKS: i32 = 528;
/// Blocks that run at once where a warp unpacks two rows of weights at a time: two on each
/// multiprocessor.
const UNPACKING_BLOCKS: i32 = 264;
/// Rows of weights of a block that multiplies several rows of x.
const WEIGHT_ROWS: i32 = 32;
/// The most columns whose row of x a block can hold.
pub(super) const MOST_COLUMNS: i32 = 1 << 14;
/// The most columns whose row of x a block can hold as floats.
const MOST_WIDE_COLUMNS: i32 = 10 << 10;
/// The most rows of x that a product takes.
pub const MOST_ROWS: i32 = 32;

const ONE_ROW: Source = Source {
    name: c"one_row",
    inputs: &[c"x", c"w", c"scales", c"biases", c"norm", c"epsilon", c"bias", c"onto"],
    outputs: &[c"out"],
    body: include_str!("one_row.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("common.cu")),
    takes_strides: false,
    written: &[],
};
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
    fn dims(self) -> Result<[i32; 2]> {
        match self {
            Weights::Dense(w) => w.dims(),
            Weights::Packed(w) => {
                let [n, groups] = w.scales.dims()?;
                Ok([n, groups * w.quantization.group_size])
            }
        }
    }

    /// Whether the parts of packed weights are of one matrix.
    fn is_whole(self) -> bool {
        match self {
            Weights::Dense(_) => true,
            Weights::Packed(w) => w.check().is_ok(),
        }
    }

    /// The type of the weights or of their scales.
    fn dtype(self) -> Dtype {
        match self {
            Weights::Dense(w) => w.dtype(),
            Weights::Packed(w) => w.scales.dtype(),
        }
    }

    /// Bits of a weight, and how many share a scale; `None`: of a kind that no kernel here knows.
    fn packing(self) -> Option<(i32, i32)> {
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

/// What a gate does to what it lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `x · sigmoid(x)`.
    Silu,
    /// The tanh form of the Gaussian error linear unit.
    GeluTanh,
}

impl Gate {
    /// As kernels know it.
    pub(super) fn code(self) -> i32 {
        match self {
            Gate::Silu => 1,
            Gate::GeluTanh => 2,
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
    pub gate: Option<Gate>,
    /// What the result is added to, of its shape.
    pub onto: Option<&'a Array>,
}

/// Whether [`one_row`] computes this.
pub fn takes_one_row(x: &Array, w: Weights<'_>, around: &Around<'_>) -> bool {
    let dtype = x.dtype();
    let Ok([n, k]) = w.dims() else { return false };
    let is_fit = |array: Option<&Array>, size: i32| {
        array.is_none_or(|array| array.dtype() == dtype && array.size() == size as usize)
    };
    let out = if around.gate.is_some() { n / 2 } else { n };
    let Some((_, group_size)) = w.packing() else { return false };
    let sizes_fit = k % 8 == 0 && (1..=MOST_COLUMNS).contains(&k) && n > 0 && group_size % 16 == 0;
    let types_fit = is_half(dtype) && w.dtype() == dtype && w.is_whole();
    let norm_fits = is_fit(around.norm.map(|(weight, _)| weight), k);
    let rest_fits = norm_fits && is_fit(around.bias, n) && is_fit(around.onto, out);
    let is_one_row = x.shape().last() == Some(&k) && x.size() == k as usize;
    is_one_row && sizes_fit && types_fit && rest_fits && (around.gate.is_none() || n % 2 == 0)
}

/// `x wᵀ` for one row of x, `[…, in]`, and what is done around it: `[…, out]`.
///
/// # Errors
/// What [`takes_one_row`] does not take; a device without CUDA.
pub fn one_row(x: &Array, w: Weights<'_>, around: &Around<'_>) -> Result<Array> {
    let ([n, k], packing) = (w.dims()?, w.packing());
    let (Some((bits, group_size)), true) = (packing, takes_one_row(x, w, around)) else {
        return Err(Error::new(format!("no product of one row for {x:?} and {w:?}")));
    };
    let (weight, scales, biases) = match w {
        Weights::Dense(weight) => (weight, x, x),
        Weights::Packed(w) => (&w.weight, &w.scales, w.biases.as_ref().unwrap_or(x)),
    };
    let out = if around.gate.is_some() { n / 2 } else { n };
    // Packed weights are unpacked beside values of x that two rows share.
    let pays_in_pairs = bits < 16 && out >= 4 * WARPS * UNPACKING_BLOCKS;
    let rows = if pays_in_pairs && around.gate.is_none() { 2 } else { 1 };
    let unpacks_pairs = rows == 2 || around.gate.is_some() && bits < 16;
    let blocks = match (unpacks_pairs, around.norm.is_some() || around.gate.is_some()) {
        (true, _) => UNPACKING_BLOCKS,
        (false, true) => BLOCKS,
        (false, false) => PLAIN_BLOCKS,
    };
    let warps = WARPS * blocks;
    let teams = (out + rows - 1) / rows;
    let columns_at_once = if bits < 16 { 512 } else { 256 };
    // Bringing the parts of a row together costs more than a few warps without work.
    let worth_splitting = WARPS * blocks.min(BLOCKS);
    let fits = |split: &i32| teams * split <= worth_splitting && columns_at_once * split <= k;
    let split = [8, 4, 2].into_iter().find(fits);
    let warps = match split {
        Some(split) => teams * split,
        // As many for each round as for the others.
        None => {
            let rounds = (teams + warps - 1) / warps;
            (teams + rounds - 1) / rounds
        }
    };
    let grid = (warps + WARPS - 1) / WARPS;
    let norm = around.norm;
    let gate = around.gate.map_or(0, Gate::code);
    let constants = [
        (c"T", Constant::Type(x.dtype())),
        (c"BITS", Constant::Int(bits)),
        (c"GROUP_SIZE", Constant::Int(group_size)),
        (c"ROWS", Constant::Int(rows)),
        (c"WIDE", Constant::Bool(bits < 16 && k <= MOST_WIDE_COLUMNS)),
        (c"MOST_WIDE_COLUMNS", Constant::Int(MOST_WIDE_COLUMNS)),
        (c"GATE", Constant::Int(gate)),
        (c"HAS_NORM", Constant::Bool(norm.is_some())),
        (c"HAS_BIAS", Constant::Bool(around.bias.is_some())),
        (c"HAS_ONTO", Constant::Bool(around.onto.is_some())),
    ];
    // In memory, so that one compiled kernel serves all norms, and what has none.
    let epsilon = scalar(norm.map_or(0.0, |(_, eps)| eps))?;
    let inputs = [
        x,
        weight,
        scales,
        biases,
        norm.map_or(x, |(weight, _)| weight),
        &epsilon,
        around.bias.unwrap_or(x),
        around.onto.unwrap_or(x),
    ];
    product(&ONE_ROW, &inputs, &constants, out, grid)
}

/// Whether [`few_rows`] multiplies `x` with such weights.
pub fn takes_few_rows(x: &Array, w: Weights<'_>) -> bool {
    let Ok([_, k]) = w.dims() else { return false };
    let is_known = match w.packing() {
        Some((16, _)) => k % 32 == 0,
        Some((4, group_size)) => matches!(group_size, 64 | 128),
        _ => false,
    };
    let types_fit = x.dtype() == Dtype::Bf16 && w.dtype() == Dtype::Bf16;
    let fits = x.shape().last() == Some(&k) && k > 0 && (1..=MOST_ROWS).contains(&rows_of(x));
    is_known && types_fit && fits && w.is_whole()
}

/// `x wᵀ` for up to [`MOST_ROWS`] rows of x, `[…, in]`: `[…, out]`.
///
/// # Errors
/// What [`takes_few_rows`] does not take; a device without CUDA.
pub fn few_rows(x: &Array, w: Weights<'_>) -> Result<Array> {
    if !takes_few_rows(x, w) {
        return Err(Error::new(format!("no product of few rows for {x:?} and {w:?}")));
    }
    let ([n, _], rows) = (w.dims()?, rows_of(x));
    // Rows of x are multiplied by eights.
    let tiles = [1, 2, 4].into_iter().find(|tiles| rows <= tiles * 8).unwrap_or(4);
    let blocks = (n + WEIGHT_ROWS - 1) / WEIGHT_ROWS;
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

/// Rows of a matrix that has any number of leading dimensions.
pub(super) fn rows_of(x: &Array) -> i32 {
    x.shape().split_last().map_or(0, |(_, leading)| leading.iter().product())
}

/// A launch of so many blocks for `out` columns.
fn product(
    source: &Source,
    inputs: &[&Array],
    constants: &[(&'static CStr, Constant)],
    out: i32,
    blocks: i32,
) -> Result<Array> {
    let mut shape = inputs[0].shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = out;
    }
    let (grid, block) = ([THREADS * blocks, 1, 1], [THREADS, 1, 1]);
    let outputs: [(&[i32], Dtype); 1] = [(&shape, inputs[0].dtype())];
    let all = Launch { grid, block, constants, outputs: &outputs };
    first(launch(source, inputs, &all)?)
}
