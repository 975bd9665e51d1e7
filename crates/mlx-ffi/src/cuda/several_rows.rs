//! Products of several rows of x.

use super::constants::{LANES, THREADS, code};
use super::kernel::{Constant, Launch, Source};
use super::launch::{Sizes, first, launch, launch_with};
use super::product::{MOST_WEIGHT_ROWS, Weights};
use crate::{Activation, Array, Dtype, Error, Result};

/// The most rows of x that [`several_rows`] takes.
pub const MOST_SEVERAL_ROWS: i32 = 64;
/// The most of them for which weights are copied ahead (`several_rows.cu`), where there is another way. With more of them, cuBLASLt is faster for
/// weights that are not packed: 64 rows by the layers of Qwen3-4B take 76 µs each there, and 90 here. Packed ones are multiplied by
/// `many_rows.cu` then: 64 requests of Qwen3-4B in 4 bits make 14,587 tokens/s while all decode, and made 12,449 with the other kernel (H200).
pub const MOST_ROWS_AHEAD: i32 = 32;

const SEVERAL_ROWS: Source = Source {
    name: c"several_rows",
    inputs: &[c"x", c"w", c"scales", c"biases"],
    outputs: &[c"out"],
    body: include_str!("several_rows.cu"),
    header: concat!(
        include_str!("chained.cu"),
        include_str!("common.cu"),
        include_str!("tensor.cu")
    ),
    takes_strides: false,
    written: &[],
};
const MANY_ROWS: Source =
    Source { name: c"many_rows", body: include_str!("many_rows.cu"), ..SEVERAL_ROWS };
const ADD_PARTS: Source = Source {
    name: c"add_parts",
    inputs: &[c"parts"],
    outputs: &[c"out"],
    body: include_str!("add_parts.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("common.cu")),
    takes_strides: false,
    written: &[],
};

/// The most parts in which a product may come.
pub(super) const MOST_PARTS: i32 = 13;

/// Columns of a stage, and the warps that share them.
const STAGE: i32 = 256;
const STAGE_WARPS: i32 = 8;
/// Rows of weights of a block, by sixteens.
const OWN_TILES: i32 = 2;
/// Stages of a ring. Longer ones read so much for later that what is needed first comes late.
const MOST_SLOTS: i32 = 6;
/// Bytes of shared memory for a ring, of which large multiprocessors have twice as much.
const MEMORY: i32 = 97 << 10;
/// The most blocks that share the columns of a ring.
const MOST_SPLITS: i32 = 4;

/// Of [`MANY_ROWS`], columns whose scales are copied at once, warps, and blocks that a large device runs at once.
const UNIT: i32 = 256;
const ROW_WARPS: i32 = 4;
const MANY_BLOCKS: i32 = 456;

/// The stages of a ring, and its bytes: of rows of weights, of those of x, and of words of scales and biases.
fn ring(tiles: i32, (bits, group_size): (i32, i32)) -> (i32, i32) {
    let rows = 16 * OWN_TILES;
    let words = if bits == 16 { 0 } else { STAGE / group_size / 2 + 1 };
    let slot = rows * STAGE / 8 * bits + tiles * 8 * STAGE * 2 + 2 * rows * words * 4;
    let slots = (MEMORY / slot).min(MOST_SLOTS);
    let sums = STAGE_WARPS * tiles * 8 * (rows + 4) * 4;
    (slots, (slots * slot).max(sums))
}

/// Whether [`several_rows`] multiplies `x` with such weights.
pub fn takes_several_rows(x: &Array, w: Weights<'_>) -> bool {
    let (Ok([n, k]), Some((bits, group_size))) = (w.dims(), w.packing()) else { return false };
    let rows = x.rows();
    let is_known = k > 0
        && match bits {
            16 => k % 8 == 0,
            _ => matches!(group_size, 32 | 64 | 128),
        };
    let types_fit = x.dtype().is_half() && w.dtype() == x.dtype() && w.is_whole();
    let most = if bits == 16 { MOST_ROWS_AHEAD } else { MOST_SEVERAL_ROWS };
    is_known
        && types_fit
        && (1..=most).contains(&rows)
        && (1..=MOST_WEIGHT_ROWS).contains(&n)
        && x.shape().last() == Some(&k)
        && k <= i32::MAX / MOST_SEVERAL_ROWS
        && n <= i32::MAX / (MOST_SEVERAL_ROWS * MOST_PARTS)
}

/// `x wᵀ` for up to [`MOST_SEVERAL_ROWS`] rows of x, `[…, in]`, and weights of `[out, in]`: `[…, out]`. Packed weights
/// are rounded to the type of x as they are unpacked.
///
/// # Errors
/// What [`takes_several_rows`] does not take; a device without CUDA.
pub fn several_rows(x: &Array, w: Weights<'_>) -> Result<Array> {
    let cut = Cut::of(x, w)?;
    let found = cut.product(x, w, None)?;
    if cut.parts == 1 { Ok(found) } else { cut.sum(&found, x, None) }
}

/// What [`several_rows`] makes, or float parts of it, `[parts, …, out]`, where blocks share the columns: they are to be added, and the
/// sums to be rounded.
///
/// # Errors
/// What [`takes_several_rows`] does not take; a device without CUDA.
pub fn several_rows_in_parts(x: &Array, w: Weights<'_>) -> Result<Array> {
    Cut::of(x, w)?.product(x, w, None)
}

/// `x wᵀ` for several rows, as [`several_rows`] makes it, whose first half gates the second: `[…, out / 2]`.
///
/// # Errors
/// What [`takes_gated_rows`] does not take; a device without CUDA.
pub fn gated_rows(x: &Array, w: Weights<'_>, gate: Activation) -> Result<Array> {
    if !takes_gated_rows(x, w) {
        return Err(Error::new(format!("no gate in {w:?}")));
    }
    let cut = Cut::of(x, w)?;
    if cut.parts == 1 {
        return cut.product(x, w, Some(gate));
    }
    cut.sum(&cut.product(x, w, None)?, x, Some(gate))
}

/// Whether [`gated_rows`] multiplies `x` with such weights.
pub fn takes_gated_rows(x: &Array, w: Weights<'_>) -> bool {
    takes_several_rows(x, w) && w.dims().is_ok_and(|[n, _]| n % 8 == 0)
}

/// How a product is shared out.
struct Cut {
    /// Of the ring: of eight rows of x; `None` where they are multiplied by [`MANY_ROWS`].
    tiles: Option<i32>,
    rows: i32,
    n: i32,
    /// Rows of blocks that have the same rows of weights, and other columns.
    parts: i32,
}

impl Cut {
    fn of(x: &Array, w: Weights<'_>) -> Result<Cut> {
        if !takes_several_rows(x, w) {
            return Err(Error::new(format!("no product of several rows for {x:?} and {w:?}")));
        }
        let ([n, k], rows) = (w.dims()?, x.rows());
        // A row gives the same whatever is beside it, up to 32 rows and beyond.
        let (is_bf16, is_even) = (x.dtype() == Dtype::Bf16, n % 8 == 0 && k % UNIT == 0);
        let is_for_many = rows > MOST_ROWS_AHEAD && is_bf16 && is_even && n >= 32 * ROW_WARPS;
        let fitting = || [1, 2, 4].into_iter().find(|tiles| rows <= tiles * 8).unwrap_or(8);
        let tiles = (!is_for_many).then(fitting);
        let parts = if tiles.is_some() {
            let blocks = (n + 16 * OWN_TILES - 1) / (16 * OWN_TILES);
            // Where four cannot be added at once, nothing is split.
            let most = if n % 4 == 0 { MOST_SPLITS.min((k + STAGE - 1) / STAGE) } else { 1 };
            (2 * Sizes::of_device().multiprocessors / blocks).clamp(1, most)
        } else {
            let (blocks, units) = ((n + 32 * ROW_WARPS - 1) / (32 * ROW_WARPS), k / UNIT);
            let wanted = (MANY_BLOCKS / blocks).clamp(1, units.min(MOST_PARTS));
            let share = (units + wanted - 1) / wanted;
            (units + share - 1) / share
        };
        Ok(Cut { tiles, rows, n, parts })
    }

    /// The product, in as many parts as there are: with a `gate` there may be only one.
    fn product(&self, x: &Array, w: Weights<'_>, gate: Option<Activation>) -> Result<Array> {
        let Cut { tiles, n, parts, .. } = *self;
        let packing = w.packing().unwrap_or_default();
        let out = if gate.is_some() { n / 2 } else { n };
        let shape = [&x.shape()[..x.shape().len() - 1], &[out]].concat();
        let of_parts = [&[parts], &shape[..]].concat();
        let output: (&[i32], Dtype) =
            if parts > 1 { (&of_parts, Dtype::F32) } else { (&shape, x.dtype()) };
        let (slots, memory) = tiles.map_or((0, 0), |tiles| ring(tiles, packing));
        let own = match tiles {
            Some(tiles) => vec![
                (c"TILES", Constant::Int(tiles)),
                (c"OWN_TILES", Constant::Int(OWN_TILES)),
                (c"STAGE", Constant::Int(STAGE)),
                (c"STAGE_WARPS", Constant::Int(STAGE_WARPS)),
                (c"SLOTS", Constant::Int(slots)),
                (c"MEMORY", Constant::Int(memory)),
            ],
            None => vec![
                (c"UNIT", Constant::Int(UNIT)),
                (c"ROW_WARPS", Constant::Int(ROW_WARPS)),
                (c"SPLITS", Constant::Int(parts)),
            ],
        };
        let constants = [
            &[
                (c"T", Constant::Type(x.dtype())),
                (c"O", Constant::Type(output.1)),
                (c"BITS", Constant::Int(packing.0)),
                (c"GROUP_SIZE", Constant::Int(packing.1)),
                (c"GATE", Constant::Int(gate.map_or(0, code))),
            ],
            &own[..],
        ]
        .concat();
        let (source, rows, warps) = match tiles {
            Some(_) => (&SEVERAL_ROWS, 16 * OWN_TILES, STAGE_WARPS),
            None => (&MANY_ROWS, 32 * ROW_WARPS, ROW_WARPS),
        };
        let (blocks, threads) = ((n + rows - 1) / rows, warps * LANES);
        let (grid, block) = ([threads * blocks, parts, 1], [threads, 1, 1]);
        let launched = Launch { grid, block, constants: &constants, outputs: &[output] };
        let (weight, scales, biases) = match w {
            Weights::Dense(weight) => (weight, x, x),
            Weights::Packed(w) => (&w.weight, &w.scales, w.biases.as_ref().unwrap_or(x)),
        };
        first(launch_with(source, memory, &[x, weight, scales, biases], &launched)?)
    }

    /// The sum of `parts`, whose first half may gate the second.
    fn sum(&self, parts: &Array, x: &Array, gate: Option<Activation>) -> Result<Array> {
        let out = if gate.is_some() { self.n / 2 } else { self.n };
        let shape = [&x.shape()[..x.shape().len() - 1], &[out]].concat();
        let constants = [
            (c"T", Constant::Type(x.dtype())),
            (c"PARTS", Constant::Int(self.parts)),
            (c"OUT", Constant::Int(out)),
            (c"GATE", Constant::Int(gate.map_or(0, code))),
        ];
        let outputs: [(&[i32], Dtype); 1] = [(&shape, x.dtype())];
        let grid = [(self.rows * out / 4 + THREADS - 1) / THREADS * THREADS, 1, 1];
        let all = Launch { grid, block: [THREADS, 1, 1], constants: &constants, outputs: &outputs };
        first(launch(&ADD_PARTS, &[parts], &all)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_have_room_where_a_block_has_little_memory() {
        for tiles in [1, 2, 4, 8] {
            let least = if tiles == 8 { 2 } else { 3 };
            for packing in [(16, 0), (8, 32), (4, 32), (4, 128)] {
                let (slots, memory) = ring(tiles, packing);
                assert!((least..=6).contains(&slots) && memory <= MEMORY, "{tiles} {packing:?}");
            }
        }
        assert_eq!(ring(4, (16, 0)), (3, 96 << 10));
        assert_eq!(ring(1, (4, 64)), (6, 6 * 8_960));
    }
}
