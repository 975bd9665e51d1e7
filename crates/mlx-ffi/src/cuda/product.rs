//! Products with a matrix of weights.

use std::ffi::CStr;

use super::constants::{
    DENSE_VALUES, LANES, MOST_COLUMNS, MOST_WIDE_COLUMNS, PACKED_VALUES, SPLITS, THREADS, WARPS,
    WEIGHT_ROWS, code,
};
use super::kernel::{Constant, Launch, Source};
use super::launch::{first, launch, scalar};
use crate::{Activation, Array, Dtype, Error, QuantMode, Quantized, Result};

/// Blocks that a large device runs at once where a row of x is normed first or unpacked weights are a gate:
/// three for each of its multiprocessors, by the registers that they take. The blocks of a second round would leave most of it
/// idle.
const BLOCKS: i32 = 396;
/// Blocks that run at once where there is neither norm nor gate: four on each multiprocessor.
const PLAIN_BLOCKS: i32 = 528;
/// Blocks that run at once where a warp unpacks two rows of weights at a time: two on each
/// multiprocessor.
const UNPACKING_BLOCKS: i32 = 264;
/// The most rows of weights that a product takes.
const MOST_WEIGHT_ROWS: i32 = 1 << 26;
/// The most rows of x that blocks of a product of few rows share.
pub const MOST_ROWS: i32 = 32;
/// The most rows of x that are multiplied with packed weights, by so many blocks each time.
pub const MOST_PACKED_ROWS: i32 = 512;

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
                let columns = groups.checked_mul(w.quantization.group_size);
                let columns = columns.ok_or_else(|| Error::new(format!("too many {groups}")))?;
                Ok([n, columns])
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

/// Whether [`one_row`] computes this.
pub fn takes_one_row(x: &Array, w: Weights<'_>, around: &Around<'_>) -> bool {
    let dtype = x.dtype();
    let Ok([n, k]) = w.dims() else { return false };
    let is_fit = |array: Option<&Array>, size: i32| {
        array.is_none_or(|array| array.dtype() == dtype && array.size() == size as usize)
    };
    let out = if around.gate.is_some() { n / 2 } else { n };
    let Some((_, group_size)) = w.packing() else { return false };
    let rows_fit = (1..=MOST_WEIGHT_ROWS).contains(&n);
    let sizes_fit =
        k % 8 == 0 && (1..=MOST_COLUMNS).contains(&k) && rows_fit && group_size % 16 == 0;
    let types_fit = dtype.is_half() && w.dtype() == dtype && w.is_whole();
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
    let cut = Cut::of(out, k, bits, (around.norm.is_some(), around.gate.is_some()));
    let norm = around.norm;
    let gate = around.gate.map_or(0, code);
    let constants = [
        (c"T", Constant::Type(x.dtype())),
        (c"BITS", Constant::Int(bits)),
        (c"GROUP_SIZE", Constant::Int(group_size)),
        (c"ROWS", Constant::Int(cut.rows)),
        (c"WIDE", Constant::Bool(bits < 16 && k <= MOST_WIDE_COLUMNS)),
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
    product(&ONE_ROW, &inputs, &constants, out, [cut.blocks(), 1])
}

/// How a product of one row is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    /// Rows of weights that a warp multiplies at a time: a group.
    rows: i32,
    warps: i32,
}

impl Cut {
    /// For `out` columns of `k` products each with weights of `bits`, after a norm or with a gate.
    fn of(out: i32, k: i32, bits: i32, (has_norm, has_gate): (bool, bool)) -> Cut {
        let is_packed = bits < 16;
        // Packed weights are unpacked beside values of x that two rows share.
        let pays_in_pairs = is_packed && out >= 4 * WARPS * UNPACKING_BLOCKS;
        let rows = if pays_in_pairs && !has_gate { 2 } else { 1 };
        let unpacks_pairs = rows == 2 || has_gate && is_packed;
        let most_blocks = match (unpacks_pairs, has_norm || has_gate) {
            (true, _) => UNPACKING_BLOCKS,
            (false, true) => BLOCKS,
            (false, false) => PLAIN_BLOCKS,
        };
        let groups = (out + rows - 1) / rows;
        let columns_at_once = LANES * if is_packed { PACKED_VALUES } else { DENSE_VALUES };
        // Bringing the parts of a row together costs more than a few warps without work.
        let worth_splitting = WARPS * most_blocks.min(BLOCKS);
        let fits = |split: &i32| groups * split <= worth_splitting && columns_at_once * split <= k;
        let warps = match SPLITS.into_iter().find(fits) {
            Some(split) => groups * split,
            // As many for each round as for the others.
            None => {
                let rounds = (groups + WARPS * most_blocks - 1) / (WARPS * most_blocks);
                (groups + rounds - 1) / rounds
            }
        };
        Cut { rows, warps }
    }

    fn blocks(self) -> i32 {
        (self.warps + WARPS - 1) / WARPS
    }
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
    let blocks = [(n + WEIGHT_ROWS - 1) / WEIGHT_ROWS, (rows + tiles * 8 - 1) / (tiles * 8)];
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

/// A launch of so many blocks for `out` columns.
fn product(
    source: &Source,
    inputs: &[&Array],
    constants: &[(&'static CStr, Constant)],
    out: i32,
    [blocks, rows_of_blocks]: [i32; 2],
) -> Result<Array> {
    let mut shape = inputs[0].shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = out;
    }
    let (grid, block) = ([THREADS * blocks, rows_of_blocks, 1], [THREADS, 1, 1]);
    let outputs: [(&[i32], Dtype); 1] = [(&shape, inputs[0].dtype())];
    let all = Launch { grid, block, constants, outputs: &outputs };
    first(launch(source, inputs, &all)?)
}

#[cfg(test)]
mod tests {
    use super::super::constants::split_for;
    use super::*;

    #[test]
    fn a_kernel_finds_the_split_that_its_launch_was_made_for() {
        for (out, k, bits) in (0..18).flat_map(|i| {
            let out = 7 << i;
            [256, 512, 1024, 4096, 9728]
                .into_iter()
                .flat_map(move |k| [4, 8, 16].map(|bits| (out, k, bits)))
        }) {
            for has_norm in [false, true] {
                let cut = Cut::of(out, k, bits, (has_norm, false));
                let groups = (out + cut.rows - 1) / cut.rows;
                let split = cut.warps / groups;
                let found = split_for(groups, cut.blocks() * WARPS);
                assert_eq!(found, split.max(1), "{out} {k} {bits} {cut:?}");
            }
        }
    }
}
