//! Products of one row of x with a matrix of weights.

use std::ffi::CStr;

use super::constants::{
    LANES, MOST_COLUMNS, MOST_WIDE_COLUMNS, ONE_ROW_THREADS, ONE_ROW_WARPS, PACKED_VALUES, SPLITS,
    THREADS, WARPS, code,
};
use super::kernel::{Constant, Source};
use super::launch::{Sizes, scalar};
use super::product::{Around, Blocks, MOST_WEIGHT_ROWS, Weights, product};
use crate::{Array, Error, Result};

/// Columns of a row of x for which kernels are compiled to have room.
const ROOMS: [i32; 3] = [4 << 10, 10 << 10, MOST_COLUMNS];
/// Bytes of shared memory for a block. Large multiprocessors have room for two of this size: of
/// products that read little, the weights of the next one arrive while one is computed.
const TWICE: i32 = 97 << 10;
/// Bytes for the only block on a multiprocessor. Where there is room for two, it may get two of one
/// product, and another multiprocessor none. Products that read much would wait for it.
const ALONE: i32 = 118 << 10;
/// The most bytes of weights of products that share multiprocessors: those of a layer of Qwen3-0.6B
/// in bf16.
const MOST_BYTES_OF_TWO: i64 = 12 << 20;
/// Bytes of shared memory that kernels name.
const NAMED: i32 = 2 << 10;
/// Packed columns that a warp multiplies at a time.
const TURN: i32 = LANES * PACKED_VALUES;
/// Turns of a warp from which on it takes two pairs of rows at a time.
const WORTH_TWO_PAIRS: i64 = 3;

/// The most bytes of weights of eight bits that are multiplied by lanes: unpacking for the tensor
/// cores would take longer than the weights.
const MOST_BYTES_BY_LANES: i64 = 8 << 20;
/// Of such products, blocks that a large device runs at once where a row of x is normed first:
/// three for each of its multiprocessors, by the registers that they take. The blocks of a second
/// round would leave most of it idle.
const BLOCKS: i32 = 396;
/// Blocks that run at once where there is neither norm nor gate: four on each multiprocessor.
const PLAIN_BLOCKS: i32 = 528;
/// Blocks that run at once where a warp unpacks two rows of weights at a time: two on each
/// multiprocessor.
const UNPACKING_BLOCKS: i32 = 264;

const ONE_ROW: Source = Source {
    name: c"one_row",
    inputs: &[c"x", c"w", c"scales", c"biases", c"norm", c"epsilon", c"bias", c"onto"],
    outputs: &[c"out"],
    body: include_str!("one_row.cu"),
    header: concat!(
        include_str!("chained.cu"),
        include_str!("tensor.cu"),
        include_str!("common.cu")
    ),
    takes_strides: false,
    written: &[],
};
const BY_LANES: Source = Source {
    name: c"one_row_by_lanes",
    body: include_str!("one_row_by_lanes.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("common.cu")),
    ..ONE_ROW
};

/// Returns true when [`one_row`] supports these operands.
pub fn takes_one_row(x: &Array, w: Weights<'_>, around: &Around<'_>) -> bool {
    let dtype = x.dtype();
    let Ok([n, k]) = w.dims() else { return false };
    let is_fit = |array: Option<&Array>, size: i32| {
        array.is_none_or(|array| array.dtype() == dtype && array.size() == size as usize)
    };
    let out = if around.gate.is_some() { n / 2 } else { n };
    let Some((_, group_size)) = w.packing() else { return false };
    let rows_fit = (1..=MOST_WEIGHT_ROWS).contains(&n);
    let groups_fit = matches!(group_size, 0 | 32 | 64 | 128);
    let sizes_fit = k % 8 == 0 && (1..=MOST_COLUMNS).contains(&k) && rows_fit && groups_fit;
    let types_fit = dtype.is_half() && w.dtype() == dtype && w.is_whole();
    let norm_fits = is_fit(around.norm.map(|(weight, _)| weight), k);
    let rest_fits = norm_fits && is_fit(around.bias, n) && is_fit(around.onto, out);
    let is_one_row = x.shape().last() == Some(&k) && x.size() == k as usize;
    is_one_row && sizes_fit && types_fit && rest_fits && (around.gate.is_none() || n % 2 == 0)
}

/// `x wᵀ` for one row of x, `[…, in]`, and what is done around it: `[…, out]`.
///
/// # Errors
/// Operands that [`takes_one_row`] rejects; a device without CUDA.
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
    let (norm, gate) = (around.norm, around.gate.map_or(0, code));
    let bytes = i64::from(n) * i64::from(k) * i64::from(bits) / 8;
    let is_by_lanes = bits == 8 && bytes <= most_bytes_by_lanes();
    let (source, memory, blocks, own) = if is_by_lanes {
        let cut = Cut::of(out, k, (norm.is_some(), gate != 0));
        let wide = Constant::Bool(k <= MOST_WIDE_COLUMNS);
        (&BY_LANES, 0, cut.blocks(), [(c"ROWS", Constant::Int(cut.rows)), (c"WIDE", wide)].to_vec())
    } else {
        let share = Share::of(Sizes::of_device(), [n, k], bits, gate != 0);
        (&ONE_ROW, share.memory, share.blocks, share.constants(bits).to_vec())
    };
    let constants = [
        &[
            (c"T", Constant::Type(x.dtype())),
            (c"GROUP_SIZE", Constant::Int(group_size)),
            (c"GATE", Constant::Int(gate)),
            (c"HAS_NORM", Constant::Bool(norm.is_some())),
            (c"HAS_BIAS", Constant::Bool(around.bias.is_some())),
            (c"HAS_ONTO", Constant::Bool(around.onto.is_some())),
        ],
        &own[..],
    ]
    .concat();
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
    let threads = if is_by_lanes { THREADS } else { ONE_ROW_THREADS };
    product(source, &inputs, &constants, out, Blocks { grid: [blocks, 1], threads, memory })
}

/// [`MOST_BYTES_BY_LANES`], or so few that tests on a processor have products of both kinds.
fn most_bytes_by_lanes() -> i64 {
    #[cfg(test)]
    if crate::on_cpu().unwrap_or(false) {
        return 16 << 10;
    }
    MOST_BYTES_BY_LANES
}

/// How a product is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    /// Pairs of rows of weights that a warp takes at a time.
    pairs: i32,
    /// Columns of x for which there is room.
    held: i32,
    /// Bytes of shared memory.
    memory: i32,
    blocks: i32,
}

impl Share {
    /// For `n` rows of `k` weights of `bits` each.
    fn of(sizes: Sizes, [n, k]: [i32; 2], bits: i32, has_gate: bool) -> Share {
        // Unpacking takes longest, and shares what it does for x.
        let turns = i64::from(n / 4) * i64::from((k + TURN - 1) / TURN);
        let is_long = turns >= WORTH_TWO_PAIRS * i64::from(sizes.multiprocessors * ONE_ROW_WARPS);
        let pairs = if bits == 4 && is_long { 2 } else { 1 };
        let held = ROOMS.into_iter().find(|room| k <= *room).unwrap_or(MOST_COLUMNS);
        let reads_little = bits == 16 && i64::from(n) * i64::from(k) * 2 <= MOST_BYTES_OF_TWO;
        let has_room = sizes.of_block >= ALONE + NAMED;
        let memory = if has_room && !reads_little { ALONE } else { TWICE };
        let (out, rows) = if has_gate { (n / 2, pairs) } else { (n, 2 * pairs) };
        Share { pairs, held, memory, blocks: ((out + rows - 1) / rows).min(sizes.multiprocessors) }
    }

    fn constants(self, bits: i32) -> [(&'static CStr, Constant); 4] {
        [
            (c"BITS", Constant::Int(bits)),
            (c"PAIRS", Constant::Int(self.pairs)),
            (c"HELD", Constant::Int(self.held)),
            (c"MEMORY", Constant::Int(self.memory)),
        ]
    }
}

/// How a short product of one row is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    /// Rows of weights that a warp multiplies at a time: a group.
    rows: i32,
    warps: i32,
}

impl Cut {
    /// For `out` columns of `k` products each, after a norm or with a gate.
    fn of(out: i32, k: i32, (has_norm, has_gate): (bool, bool)) -> Cut {
        // They are unpacked beside values of x that two rows share.
        let pays_in_pairs = out >= 4 * WARPS * UNPACKING_BLOCKS;
        let rows = if pays_in_pairs && !has_gate { 2 } else { 1 };
        let unpacks_pairs = rows == 2 || has_gate;
        let most_blocks = match (unpacks_pairs, has_norm || has_gate) {
            (true, _) => UNPACKING_BLOCKS,
            (false, true) => BLOCKS,
            (false, false) => PLAIN_BLOCKS,
        };
        let groups = (out + rows - 1) / rows;
        let columns_at_once = LANES * PACKED_VALUES;
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

#[cfg(test)]
mod tests {
    use super::super::constants::split_for;
    use super::*;

    #[test]
    fn a_kernel_finds_the_split_that_its_launch_was_made_for() {
        for (out, k) in (0..18).flat_map(|i| [256, 512, 1024, 4096, 9728].map(|k| (7 << i, k))) {
            for has_norm in [false, true] {
                let cut = Cut::of(out, k, (has_norm, false));
                let groups = (out + cut.rows - 1) / cut.rows;
                let split = cut.warps / groups;
                let found = split_for(groups, cut.blocks() * WARPS);
                assert_eq!(found, split.max(1), "{out} {k} {cut:?}");
            }
        }
    }

    #[test]
    fn long_products_have_a_multiprocessor_for_each_block() {
        let large =
            Sizes { multiprocessors: 132, of_multiprocessor: 228 << 10, of_block: 227 << 10 };
        let long = Share::of(large, [19456, 2560], 16, true);
        assert_eq!((long.memory, long.held, long.pairs), (ALONE, 4096, 1));
        assert_eq!(Share::of(large, [1024, 3072], 16, false).memory, TWICE);
        let packed = Share::of(large, [19456, 2560], 4, true);
        assert_eq!((packed.memory, packed.pairs, packed.blocks), (ALONE, 2, 132));
        assert_eq!(Share::of(large, [2560, 9728], 4, false).held, 10240);
        assert_eq!(Share::of(large, [3, 64], 4, false).blocks, 2);
        let small = Sizes { of_block: 99 << 10, ..large };
        assert_eq!(Share::of(small, [19456, 2560], 16, true).memory, TWICE);
    }
}
