//! Products of several rows of x with packed weights.

use super::constants::{THREADS, WARPS};
use super::kernel::{Constant, Launch, Source};
use super::launch::{first, launch};
use crate::{Array, Dtype, Error, QuantMode, Quantization, Quantized, Result};

/// The most rows of x that [`several_rows`] takes.
pub const MOST_SEVERAL_ROWS: i32 = 64;

const SEVERAL_ROWS: Source = Source {
    name: c"several_rows",
    inputs: &[c"x", c"w", c"scales", c"biases"],
    outputs: &[c"out"],
    body: include_str!("several_rows.cu"),
    header: concat!(
        include_str!("chained.cu"),
        include_str!("tensor.cu"),
        include_str!("multiply.cu")
    ),
    takes_strides: false,
    written: &[],
};
const ADD_PARTS: Source = Source {
    name: c"add_parts",
    inputs: &[c"parts"],
    outputs: &[c"out"],
    body: include_str!("add_parts.cu"),
    header: include_str!("chained.cu"),
    takes_strides: false,
    written: &[],
};

/// Rows of weights of a block.
const ROWS: i32 = WARPS * 16;
/// Blocks that a large device runs at once: two on each multiprocessor.
const BLOCKS: i32 = 264;
/// Groups of a row whose scales are copied at once.
const GROUPS: i32 = 8;
/// The most blocks that share the columns.
const MOST_SPLITS: i32 = 8;

/// Whether [`several_rows`] multiplies `x` with such weights.
pub fn takes_several_rows(x: &Array, w: &Quantized) -> bool {
    let Quantization { mode, bits, group_size } = w.quantization;
    let Ok([n, groups]) = w.scales.dims::<2>() else { return false };
    let is_known = mode == QuantMode::Affine
        && matches!(bits, 4 | 8)
        && matches!(group_size, 32 | 64 | 128)
        && w.biases.is_some();
    let types_fit = x.dtype() == Dtype::Bf16 && w.scales.dtype() == Dtype::Bf16;
    let rows = x.rows();
    let columns = i64::from(groups) * i64::from(group_size);
    let fits = n > 0
        && n % 8 == 0
        && groups > 0
        && groups % GROUPS == 0
        && x.shape().last().map(|columns| i64::from(*columns)) == Some(columns)
        && (1..=MOST_SEVERAL_ROWS).contains(&rows)
        && columns * i64::from(rows) <= i64::from(i32::MAX)
        && i64::from(n) * i64::from(rows) <= i64::from(i32::MAX) / i64::from(MOST_SPLITS);
    is_known && types_fit && fits && w.check().is_ok()
}

/// `x wᵀ` for up to [`MOST_SEVERAL_ROWS`] rows of x, `[…, in]`, and packed weights of `[out, in]`: `[…, out]`. The weights
/// are rounded to bf16 as they are unpacked.
///
/// # Errors
/// What [`takes_several_rows`] does not take; a device without CUDA.
pub fn several_rows(x: &Array, w: &Quantized) -> Result<Array> {
    let (true, Some(biases)) = (takes_several_rows(x, w), &w.biases) else {
        return Err(Error::new(format!("no product of several rows for {x:?} and {w:?}")));
    };
    let ([n, groups], rows) = (w.scales.dims::<2>()?, x.rows());
    let mut shape = x.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = n;
    }
    let tiles = [2, 4].into_iter().find(|tiles| rows <= tiles * 8).unwrap_or(8);
    let blocks = (n + ROWS - 1) / ROWS;
    // By the sizes of the weights alone, so that a row gives the same whatever is beside it.
    let units = groups / GROUPS;
    let share = units / (BLOCKS / blocks).min(units).clamp(1, MOST_SPLITS);
    let splits = (units + share - 1) / share;
    let of_parts = [splits, rows * n];
    let output: (&[i32], Dtype) =
        if splits > 1 { (&of_parts, Dtype::F32) } else { (&shape, x.dtype()) };
    let constants = [
        (c"T", Constant::Type(x.dtype())),
        (c"O", Constant::Type(output.1)),
        (c"TILES", Constant::Int(tiles)),
        (c"BITS", Constant::Int(w.quantization.bits)),
        (c"GROUP_SIZE", Constant::Int(w.quantization.group_size)),
        (c"SPLITS", Constant::Int(splits)),
    ];
    let (grid, block) = ([THREADS * blocks, splits, 1], [THREADS, 1, 1]);
    let all = Launch { grid, block, constants: &constants, outputs: &[output] };
    let found = first(launch(&SEVERAL_ROWS, &[x, &w.weight, &w.scales, biases], &all)?)?;
    if splits == 1 {
        return Ok(found);
    }
    let constants = [(c"T", Constant::Type(x.dtype())), (c"PARTS", Constant::Int(splits))];
    let outputs: [(&[i32], Dtype); 1] = [(&shape, x.dtype())];
    let grid = [(rows * n / 4 + THREADS - 1) / THREADS * THREADS, 1, 1];
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    first(launch(&ADD_PARTS, &[&found], &all)?)
}
