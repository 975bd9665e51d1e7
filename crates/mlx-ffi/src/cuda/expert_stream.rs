//! Products of few rows with the matrices of the experts that they chose: each matrix is read once.

use std::ffi::CStr;

use super::constants::{DENSE, FLOATS, LANES};
use super::expert_matrices::Form;
use super::kernel::{Constant, Source};
use super::launch::Sizes;

pub(super) const EXPERT_STREAM: Source = Source {
    name: c"expert_stream",
    inputs: &[
        c"x",
        c"w",
        c"w_up",
        c"scales",
        c"scales_up",
        c"minima",
        c"minima_up",
        c"bias",
        c"bias_up",
        c"order",
        c"tiles",
        c"limits",
    ],
    outputs: &[c"out"],
    body: include_str!("expert_stream.cu"),
    header: concat!(
        include_str!("chained.cu"),
        include_str!("common.cu"),
        include_str!("tensor.cu"),
        include_str!("expert_common.cu")
    ),
    takes_strides: false,
    written: &[],
};

/// Warps of a block, which share the columns of a stage.
const STREAM_WARPS: i32 = 4;
/// Bytes that a block has beside those that it asks for: the system's, and what it knows of items.
const OF_BLOCK: i32 = (1 << 10) + 512;

/// The rows of x in the tiles of experts that have so many rows each on average; `None`: too many.
pub(super) fn streamed_rows(count: i32, experts: i32) -> Option<i32> {
    match count / experts {
        0..=6 => Some(8),
        7..=11 => Some(16),
        12..=23 => Some(32),
        _ => None,
    }
}

/// How a product is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    /// Of eight rows of x.
    tiles: i32,
    /// Of sixteen rows of the matrix, of a block.
    own_tiles: i32,
    /// Columns of a stage.
    stage: i32,
    slots: i32,
    /// Bytes of shared memory.
    pub(super) memory: i32,
    blocks: i32,
}

impl Stream {
    /// That of matrices of `form` with tiles of so many rows of x; `pairs`: a gate has rows of its
    /// own. `None`: no kernel knows them.
    pub(super) fn of(form: Form, pairs: bool, tile_rows: i32, sizes: Sizes) -> Option<Stream> {
        let Form { kind, bits, group_size, rows, columns, .. } = form;
        // With more rows of the matrix, fewer blocks read the same rows of x. Projections in of 64
        // rows of 8 of 128 experts in 4 bits take 75 µs so, and otherwise 82; those out take 43 and
        // 40 (H200, 2048 to 768 and back).
        let are_whole = |own_tiles: i32| rows % (16 * own_tiles / (1 + i32::from(pairs))) == 0;
        let most = if pairs && kind != DENSE && bits == 4 && tile_rows == 8 { 8 } else { 4 };
        let own_tiles = [8, 4].into_iter().find(|own| *own <= most && are_whole(*own))?;
        let own_rows = 16 * own_tiles;
        let groups_fit = match kind {
            DENSE => true,
            FLOATS => group_size == 32,
            _ => matches!(group_size, 32 | 64 | 128),
        };
        if !groups_fit {
            return None;
        }
        let stage = if kind == DENSE { 128 } else { 256 };
        let scales = match kind {
            DENSE => 0,
            _ => {
                let (kinds, size) = if kind == FLOATS { (1, 1) } else { (2, 2) };
                let bytes = stage / group_size * size;
                let is_whole = columns / group_size * size % bytes == 0;
                kinds * own_rows * if is_whole { bytes } else { bytes + 4 }
            }
        };
        let slot = own_rows * stage / 8 * bits + tile_rows * stage * 2 + scales;
        let sums = STREAM_WARPS * tile_rows * (own_rows + 4) * 4;
        // They lie in a stage where they fit.
        let sums = if sums <= slot { 0 } else { sums };
        let slots_of = |blocks: i32| {
            let memory = (sizes.of_multiprocessor / blocks - OF_BLOCK).min(sizes.of_block);
            (memory - sums) / slot
        };
        let (together, slots) = [3, 2, 1]
            .into_iter()
            .map(|blocks| (blocks, slots_of(blocks).min(8)))
            .find(|(_, slots)| *slots >= 3)
            .or_else(|| Some((1, slots_of(1))).filter(|(_, slots)| *slots >= 2))?;
        let memory = slots * slot + sums;
        let blocks = sizes.multiprocessors * together;
        Some(Stream { tiles: tile_rows / 8, own_tiles, stage, slots, memory, blocks })
    }

    /// Grid and threads of a launch.
    pub(super) fn grid(self) -> [[i32; 3]; 2] {
        let threads = STREAM_WARPS * LANES;
        [[threads * self.blocks, 1, 1], [threads, 1, 1]]
    }

    pub(super) fn constants(self) -> [(&'static CStr, Constant); 5] {
        [
            (c"TILES", Constant::Int(self.tiles)),
            (c"OWN_TILES", Constant::Int(self.own_tiles)),
            (c"STAGE", Constant::Int(self.stage)),
            (c"SLOTS", Constant::Int(self.slots)),
            (c"MEMORY", Constant::Int(self.memory)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::constants::AFFINE;
    use super::*;

    const SMALL: Sizes =
        Sizes { multiprocessors: 128, of_multiprocessor: 100 << 10, of_block: 99 << 10 };

    /// The form of packing by kind, bits and group size.
    fn form([kind, bits, group_size]: [i32; 3], [rows, columns]: [i32; 2]) -> Form {
        Form { kind, bits, group_size, experts: 128, rows, columns, has_bias: false }
    }

    #[test]
    fn rings_have_room() {
        for packing in [[DENSE, 16, 0], [AFFINE, 4, 64], [AFFINE, 8, 32], [FLOATS, 4, 32]] {
            for (size, pairs) in [([768, 2048], true), ([2880, 2880], true), ([2816, 704], false)] {
                for tile_rows in [8, 16, 32] {
                    for sizes in [Sizes::LARGE, SMALL] {
                        let form = form(packing, size);
                        let stream = Stream::of(form, pairs, tile_rows, sizes).expect("a stream");
                        let together = stream.blocks / sizes.multiprocessors;
                        let all = together * (stream.memory + OF_BLOCK);
                        let fits = stream.slots >= 2 && stream.memory <= sizes.of_block;
                        let fits = fits && all <= sizes.of_multiprocessor;
                        assert!(fits, "{packing:?} {size:?} {tile_rows} {sizes:?}: {stream:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn large_multiprocessors_have_three_blocks_with_tiles_of_few_rows() {
        let of = |packing, size, pairs, tile_rows| {
            let stream = Stream::of(form(packing, size), pairs, tile_rows, Sizes::LARGE);
            let stream = stream.expect("a stream");
            (stream.own_tiles, stream.slots, stream.blocks / Sizes::LARGE.multiprocessors)
        };
        assert_eq!(of([AFFINE, 4, 64], [768, 2048], true, 8), (8, 3, 3));
        assert_eq!(of([AFFINE, 4, 64], [2048, 768], false, 8), (4, 5, 3));
        assert_eq!(of([AFFINE, 4, 64], [768, 2048], true, 16), (4, 4, 3));
        assert_eq!(of([DENSE, 16, 0], [768, 2048], true, 8), (4, 4, 3));
    }

    #[test]
    fn matrices_that_blocks_do_not_share_evenly_are_not_streamed() {
        let of = |packing, size| Stream::of(form(packing, size), true, 8, Sizes::LARGE);
        assert_eq!(of([AFFINE, 4, 64], [784, 2048]), None);
        assert_eq!(of([FLOATS, 4, 16], [768, 2048]), None);
    }
}
