//! Products of several rows of x.

use super::constants::{LANES, THREADS, code};
use super::kernel::{Constant, Launch, Source};
use super::launch::{Sizes, first, launch, launch_with};
use super::product::{MOST_WEIGHT_ROWS, Weights};
use crate::{Activation, Array, Dtype, Error, Result};

/// The most rows of x that [`several_rows`] takes.
pub const MOST_SEVERAL_ROWS: i32 = 64;
/// The most of them with weights that are not packed. With more, cuBLASLt is faster: 64 rows by the
/// layers of Qwen3-4B take 76 µs each there, and 78 here (H200).
pub const MOST_DENSE_ROWS: i32 = 32;

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
const ADD_PARTS: Source = Source {
    name: c"add_parts",
    inputs: &[c"parts"],
    outputs: &[c"out"],
    body: include_str!("add_parts.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("common.cu")),
    takes_strides: false,
    written: &[],
};

/// The most blocks that share the columns of a product, and so the parts in which it may come.
pub(super) const MOST_PARTS: i32 = 4;

/// Columns of a stage.
const STAGE: i32 = 256;
/// Bytes of shared memory for a ring, of which large multiprocessors have twice as much.
const MEMORY: i32 = 110 << 10;
/// Bytes that a block has beside those that it asks for.
const OF_SYSTEM: i32 = 1 << 10;

/// How rings of shared memory are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ring {
    /// Of eight rows of x.
    tiles: i32,
    /// Of sixteen rows of weights, of a block.
    own_tiles: i32,
    /// That share the columns of a stage.
    warps: i32,
    /// The columns are a whole number of stages.
    is_whole: bool,
    slots: i32,
    /// Bytes of shared memory.
    memory: i32,
}

impl Ring {
    /// That of a product, and how many blocks share its columns.
    fn of(rows: i32, [n, k]: [i32; 2], packing: (i32, i32), sizes: Sizes) -> (Ring, i32) {
        let tiles = [1, 2, 4].into_iter().find(|tiles| rows <= tiles * 8).unwrap_or(8);
        let (bits, _) = packing;
        // Warps that unpack are fewer: each then has more to do between two barriers. The layers of
        // Qwen3-4B in 4 bits take 31.6 µs each for eight rows, and 37.5 with eight warps (H200).
        let warps = if bits == 16 { 8 } else { 4 };
        // Where four cannot be added at once, nothing is split.
        let most = if n % 4 == 0 { MOST_PARTS.min((k + STAGE - 1) / STAGE) } else { 1 };
        let blocks_of = |own_tiles: i32| (n + 16 * own_tiles - 1) / (16 * own_tiles);
        let own_tiles = match blocks_of(2) {
            // Blocks of fewer rows keep more multiprocessors busy.
            blocks if bits < 16 && blocks * most < sizes.multiprocessors => 1,
            // Those of more rows copy x less often.
            blocks if bits < 16 && tiles == 4 && blocks > 6 * sizes.multiprocessors => 3,
            _ => 2,
        };
        let blocks = blocks_of(own_tiles);
        let parts = (2 * sizes.multiprocessors / blocks).clamp(1, most);
        let is_whole = k % STAGE == 0;
        let ring = Ring { tiles, own_tiles, warps, is_whole, slots: 0, memory: 0 };
        (ring.sized(packing, blocks * parts, sizes), parts)
    }

    /// The ring with its stages, and bytes for rows of weights, for those of x, and for scales and
    /// biases, which may begin within a word where stages are not whole. Two blocks have room on a
    /// large multiprocessor, so that the next kernel's have, too. Of more blocks than find room at
    /// once, four have, where their rings are small: three would leave some multiprocessors with
    /// more than others.
    fn sized(self, (bits, group_size): (i32, i32), blocks: i32, sizes: Sizes) -> Ring {
        let Ring { tiles, own_tiles, warps, is_whole, .. } = self;
        let rows = 16 * own_tiles;
        let scales = match bits {
            16 => 0,
            _ => STAGE / group_size + if is_whole { 0 } else { 2 },
        };
        let slot = rows * STAGE / 8 * bits + tiles * 8 * STAGE * 2 + 2 * rows * scales * 2;
        let share = |of: i32| sizes.of_multiprocessor / of - OF_SYSTEM;
        // Longer rings read so much for later that what is needed first comes late.
        let slots_in = |memory: i32| (memory / slot).min(if tiles < 4 { 5 } else { 4 });
        let (slots, least) = match (slots_in(share(4)), slots_in(share(2).min(MEMORY))) {
            (slots @ 4.., _) if blocks > 2 * sizes.multiprocessors => (slots, share(5)),
            (_, slots @ 3..) => (slots, share(3)),
            _ => (slots_in(sizes.of_block.min(MEMORY)), 0),
        };
        let sums = warps * tiles * 8 * (rows + 4) * 4;
        // Whole multiples of what lanes copy, and more than the next smaller share.
        let memory = (slots * slot).max(sums).max((least + 16) / 16 * 16);
        Ring { slots, memory, ..self }
    }
}

/// Returns true when [`several_rows`] supports `x` and such weights.
pub fn takes_several_rows(x: &Array, w: Weights<'_>) -> bool {
    let (Ok([n, k]), Some((bits, group_size))) = (w.dims(), w.packing()) else { return false };
    let rows = x.rows();
    let is_known = k > 0
        && match bits {
            16 => k % 8 == 0,
            _ => matches!(group_size, 32 | 64 | 128),
        };
    let types_fit = x.dtype().is_half() && w.dtype() == x.dtype() && w.is_whole();
    let most = if bits == 16 { MOST_DENSE_ROWS } else { MOST_SEVERAL_ROWS };
    is_known
        && types_fit
        && (1..=most).contains(&rows)
        && (1..=MOST_WEIGHT_ROWS).contains(&n)
        && x.shape().last() == Some(&k)
        && k <= i32::MAX / MOST_SEVERAL_ROWS
        && n <= i32::MAX / (MOST_SEVERAL_ROWS * MOST_PARTS)
}

/// `x wᵀ` for up to [`MOST_SEVERAL_ROWS`] rows of x, `[…, in]`, and weights of `[out, in]`: `[…,
/// out]`. Packed weights are rounded to the type of x as they are unpacked.
///
/// # Errors
/// Operands that [`takes_several_rows`] rejects; a device without CUDA.
pub fn several_rows(x: &Array, w: Weights<'_>) -> Result<Array> {
    let cut = Cut::of(x, w)?;
    let found = cut.product(x, w, None)?;
    if cut.parts == 1 { Ok(found) } else { cut.sum(&found, x, None) }
}

/// The product of [`several_rows`], or float parts of it, `[parts, …, out]`, where blocks share the
/// columns. Parts are to be added, and the sums to be rounded.
///
/// # Errors
/// Operands that [`takes_several_rows`] rejects; a device without CUDA.
pub fn several_rows_in_parts(x: &Array, w: Weights<'_>) -> Result<Array> {
    Cut::of(x, w)?.product(x, w, None)
}

/// `x wᵀ` for several rows, as [`several_rows`] makes it, whose first half gates the second: `[…,
/// out / 2]`.
///
/// # Errors
/// Operands that [`takes_gated_rows`] rejects; a device without CUDA.
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

/// Returns true when [`gated_rows`] supports `x` and such weights.
pub fn takes_gated_rows(x: &Array, w: Weights<'_>) -> bool {
    takes_several_rows(x, w) && w.dims().is_ok_and(|[n, _]| n % 8 == 0)
}

/// How a product is shared out.
struct Cut {
    ring: Ring,
    rows: i32,
    n: i32,
    /// Rows of blocks that have the same rows of weights, and other columns.
    parts: i32,
}

impl Cut {
    fn of(x: &Array, w: Weights<'_>) -> Result<Cut> {
        let packing = w.packing().filter(|_| takes_several_rows(x, w));
        let Some(packing) = packing else {
            return Err(Error::new(format!("no product of several rows for {x:?} and {w:?}")));
        };
        let (size, rows) = (w.dims()?, x.rows());
        let (ring, parts) = Ring::of(rows, size, packing, Sizes::of_device());
        Ok(Cut { ring, rows, n: size[0], parts })
    }

    /// The product, in as many parts as there are: with a `gate` there may be only one.
    fn product(&self, x: &Array, w: Weights<'_>, gate: Option<Activation>) -> Result<Array> {
        let Cut { ring, n, parts, .. } = *self;
        let (bits, group_size) = w.packing().unwrap_or_default();
        let out = if gate.is_some() { n / 2 } else { n };
        let shape = [&x.shape()[..x.shape().len() - 1], &[out]].concat();
        let of_parts = [&[parts], &shape[..]].concat();
        let output: (&[i32], Dtype) =
            if parts > 1 { (&of_parts, Dtype::F32) } else { (&shape, x.dtype()) };
        let constants = [
            (c"T", Constant::Type(x.dtype())),
            (c"O", Constant::Type(output.1)),
            (c"BITS", Constant::Int(bits)),
            (c"GROUP_SIZE", Constant::Int(group_size)),
            (c"GATE", Constant::Int(gate.map_or(0, code))),
            (c"TILES", Constant::Int(ring.tiles)),
            (c"OWN_TILES", Constant::Int(ring.own_tiles)),
            (c"STAGE", Constant::Int(STAGE)),
            (c"STAGE_WARPS", Constant::Int(ring.warps)),
            (c"WHOLE", Constant::Bool(ring.is_whole)),
            (c"SLOTS", Constant::Int(ring.slots)),
            (c"MEMORY", Constant::Int(ring.memory)),
        ];
        let (rows, threads) = (16 * ring.own_tiles, ring.warps * LANES);
        let grid = [threads * ((n + rows - 1) / rows), parts, 1];
        let launched =
            Launch { grid, block: [threads, 1, 1], constants: &constants, outputs: &[output] };
        let (weight, scales, biases) = match w {
            Weights::Dense(weight) => (weight, x, x),
            Weights::Packed(w) => (&w.weight, &w.scales, w.biases.as_ref().unwrap_or(x)),
        };
        first(launch_with(&SEVERAL_ROWS, ring.memory, &[x, weight, scales, biases], &launched)?)
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

    const SMALL: Sizes =
        Sizes { multiprocessors: 128, of_multiprocessor: 100 << 10, of_block: 99 << 10 };

    #[test]
    fn rings_have_room_where_a_block_has_little_memory() {
        for rows in [2, 9, 32, 64] {
            for packing in [(16, 0), (8, 32), (4, 32), (4, 128)] {
                if rows > MOST_DENSE_ROWS && packing.0 == 16 {
                    continue;
                }
                for size in [[2560, 2560], [19456, 2560], [1024, 1152], [151936, 1024]] {
                    for sizes in [Sizes::LARGE, SMALL] {
                        let (ring, _) = Ring::of(rows, size, packing, sizes);
                        let least = if rows == 64 { 2 } else { 3 };
                        let fits = ring.memory <= sizes.of_block.min(MEMORY)
                            && (least..=5).contains(&ring.slots);
                        assert!(fits, "{rows} {packing:?} {size:?} {sizes:?}: {ring:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn multiprocessors_have_two_blocks_each_or_four() {
        let blocks_of = |rows, size, packing| {
            let (ring, parts) = Ring::of(rows, size, packing, Sizes::LARGE);
            let together = Sizes::LARGE.of_multiprocessor / (ring.memory + OF_SYSTEM);
            (ring.own_tiles, parts, together)
        };
        assert_eq!(blocks_of(8, [2560, 9728], (4, 64)), (2, 3, 2));
        assert_eq!(blocks_of(8, [19456, 2560], (4, 64)), (2, 1, 4));
        assert_eq!(blocks_of(8, [1024, 3072], (4, 64)), (1, 4, 2));
        assert_eq!(blocks_of(32, [19456, 2560], (4, 64)), (2, 1, 2));
        assert_eq!(blocks_of(32, [28672, 4096], (4, 64)), (3, 1, 2));
        assert_eq!(blocks_of(32, [2560, 9728], (16, 0)), (2, 3, 2));
    }
}
