//! Products of several rows of x with packed weights.

use super::constants::{LANES, THREADS, code};
use super::kernel::{Constant, Launch, Source};
use super::launch::{first, launch};
use crate::{Activation, Array, Dtype, Error, QuantMode, Quantization, Quantized, Result};

/// The most rows of x that [`several_rows`] takes.
pub const MOST_SEVERAL_ROWS: i32 = 64;

const SEVERAL_ROWS: Source = Source {
    name: c"several_rows",
    inputs: &[c"x", c"w", c"scales", c"biases"],
    outputs: &[c"out"],
    body: include_str!("several_rows.cu"),
    header: concat!(
        include_str!("chained.cu"),
        include_str!("common.cu"),
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
    header: concat!(include_str!("chained.cu"), include_str!("common.cu")),
    takes_strides: false,
    written: &[],
};

/// Columns whose scales are copied at once.
const UNIT: i32 = 256;
/// Rows of weights of a warp.
const OWN_ROWS: i32 = 32;
/// The most blocks that share the columns.
const MOST_SPLITS: i32 = 13;

/// How the warps of a block share its work.
struct Shape {
    /// Rows of x are taken by eights, so many of them.
    tiles: i32,
    row_warps: i32,
    column_warps: i32,
    /// Blocks that a large device runs at once.
    blocks: i32,
}

impl Shape {
    const FEW: Shape = Shape { tiles: 2, row_warps: 2, column_warps: 2, blocks: 396 };
    const SOME: Shape = Shape { tiles: 4, ..Shape::FEW };
    /// Two warps for the same rows would hold more of x than a block may.
    const MANY: Shape = Shape { tiles: 8, row_warps: 4, column_warps: 1, blocks: 456 };

    fn of(rows: i32) -> Shape {
        let all = [Shape::FEW, Shape::SOME];
        all.into_iter().find(|shape| rows <= shape.tiles * 8).unwrap_or(Shape::MANY)
    }

    /// Rows of weights of a block.
    const fn rows(&self) -> i32 {
        self.row_warps * OWN_ROWS
    }
}

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
    let fits = n >= Shape::MANY.rows()
        && n % 8 == 0
        && columns > 0
        && columns % i64::from(UNIT) == 0
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
    product(x, w, None)
}

/// `x wᵀ` for several rows, as [`several_rows`] makes it, whose first half gates the second: `[…, out / 2]`.
///
/// # Errors
/// What [`takes_gated_rows`] does not take; a device without CUDA.
pub fn gated_rows(x: &Array, w: &Quantized, gate: Activation) -> Result<Array> {
    if !takes_gated_rows(x, w) {
        return Err(Error::new(format!("no gate in {w:?}")));
    }
    product(x, w, Some(gate))
}

/// Whether [`gated_rows`] multiplies `x` with such weights.
pub fn takes_gated_rows(x: &Array, w: &Quantized) -> bool {
    takes_several_rows(x, w) && w.scales.shape().first().is_some_and(|n| n % 16 == 0)
}

fn product(x: &Array, w: &Quantized, gate: Option<Activation>) -> Result<Array> {
    let (true, Some(biases)) = (takes_several_rows(x, w), &w.biases) else {
        return Err(Error::new(format!("no product of several rows for {x:?} and {w:?}")));
    };
    let ([n, groups], rows) = (w.scales.dims::<2>()?, x.rows());
    let out = if gate.is_some() { n / 2 } else { n };
    let gate = (c"GATE", Constant::Int(gate.map_or(0, code)));
    let mut shape = x.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = out;
    }
    let of = Shape::of(rows);
    let blocks = (n + of.rows() - 1) / of.rows();
    // A row gives the same whatever is beside it, up to 32 rows and beyond.
    let units = groups * w.quantization.group_size / UNIT;
    let wanted = (of.blocks / blocks).clamp(1, units.min(MOST_SPLITS));
    let share = (units + wanted - 1) / wanted;
    let splits = (units + share - 1) / share;
    let of_parts = [splits, rows * n];
    let output: (&[i32], Dtype) =
        if splits > 1 { (&of_parts, Dtype::F32) } else { (&shape, x.dtype()) };
    let constants = [
        (c"T", Constant::Type(x.dtype())),
        (c"O", Constant::Type(output.1)),
        (c"TILES", Constant::Int(of.tiles)),
        (c"ROW_WARPS", Constant::Int(of.row_warps)),
        (c"COLUMN_WARPS", Constant::Int(of.column_warps)),
        (c"UNIT", Constant::Int(UNIT)),
        (c"BITS", Constant::Int(w.quantization.bits)),
        (c"GROUP_SIZE", Constant::Int(w.quantization.group_size)),
        (c"SPLITS", Constant::Int(splits)),
        gate,
    ];
    let threads = of.row_warps * of.column_warps * LANES;
    let (grid, block) = ([threads * blocks, splits, 1], [threads, 1, 1]);
    let all = Launch { grid, block, constants: &constants, outputs: &[output] };
    let found = first(launch(&SEVERAL_ROWS, &[x, &w.weight, &w.scales, biases], &all)?)?;
    if splits == 1 {
        return Ok(found);
    }
    let constants = [
        (c"T", Constant::Type(x.dtype())),
        (c"PARTS", Constant::Int(splits)),
        (c"OUT", Constant::Int(out)),
        gate,
    ];
    let outputs: [(&[i32], Dtype); 1] = [(&shape, x.dtype())];
    let grid = [(rows * out / 4 + THREADS - 1) / THREADS * THREADS, 1, 1];
    let all = Launch { grid, block: [THREADS, 1, 1], constants: &constants, outputs: &outputs };
    first(launch(&ADD_PARTS, &[&found], &all)?)
}
