//! Layers with a recurrent state.

use std::ffi::CStr;

use super::constants::{LANES, THREADS, WARPS};
use super::kernel::{Constant, Launch, Source};
use super::launch::launch;
use crate::cpu::{ConvolutionActivation, DeltaRule, Filter, SelectiveScan};
use crate::custom_kernel::{counts, has_lengths, pair};
use crate::step::Heads as Columns;
use crate::{Array, Dtype, Error, Result};

/// Rows of a head's state that a warp holds.
const SHARE: i32 = 4;
/// Positions that a block has in shared memory at a time, a multiple of its warps.
const TILE: i32 = 2 * WARPS;
/// From so many positions on, a block takes them in tiles.
const CHUNK_FROM: i32 = 8;
/// Positions that a block has in shared memory at a time, where tensor cores compute them, and its
/// warps.
const TENSOR_TILE: i32 = 32;
const TENSOR_WARPS: i32 = 4;
/// Rows of a head's state that such a block holds.
const TENSOR_LINES: i32 = 16 * TENSOR_WARPS;
/// The most values of a convolution's result: each thread takes eight, and threads are counted in
/// 32 bits.
const MOST_VALUES: i64 = 1 << 31;
/// The most decays of a head, where each column of its state has one: tiles have them in shared
/// memory.
const MOST_DECAYS: i32 = 128;
/// The most taps of a convolution.
const MOST_TAPS: i32 = 16;
/// The most rows of a batch, and the most heads: the second and the third dimension of a grid.
const MOST_ROWS: i32 = 65_535;

/// The header of kernels that compute tiles on the tensor cores.
const OF_TENSORS: &str = concat!(
    include_str!("chained.cu"),
    include_str!("tensor.cu"),
    include_str!("recurrent_tiles.cu")
);

const CONVOLUTION: Source = Source {
    name: c"convolution",
    inputs: &[c"x", c"state", c"weight", c"bias", c"lengths"],
    outputs: &[c"out", c"next"],
    body: include_str!("convolution.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("convolved.cu")),
    takes_strides: false,
    written: &[],
};
const CONVOLUTION_STEP: Source = Source {
    name: c"convolution_step",
    inputs: &[c"x", c"state", c"weight", c"bias"],
    outputs: &[c"out"],
    body: include_str!("convolution_step.cu"),
    header: concat!(include_str!("chained.cu"), include_str!("convolved.cu")),
    takes_strides: false,
    written: &[1],
};
const DELTA: Source = Source {
    name: c"delta",
    inputs: &[c"mixed", c"a", c"b", c"a_log", c"dt_bias", c"state", c"lengths"],
    outputs: &[c"out"],
    body: include_str!("delta.cu"),
    header: include_str!("chained.cu"),
    takes_strides: false,
    written: &[5],
};
const DELTA_CHUNK: Source =
    Source { name: c"delta_chunk", body: include_str!("delta_chunk.cu"), ..DELTA };
const DELTA_TILES: Source = Source {
    name: c"delta_tiles",
    body: include_str!("delta_tiles.cu"),
    header: OF_TENSORS,
    ..DELTA
};
const SCAN: Source = Source {
    name: c"scan",
    inputs: &[c"mixed", c"dt", c"a_log", c"dt_bias", c"d", c"state", c"lengths"],
    outputs: &[c"out"],
    body: include_str!("scan.cu"),
    header: include_str!("chained.cu"),
    takes_strides: false,
    written: &[5],
};

const SCAN_CHUNK: Source =
    Source { name: c"scan_chunk", body: include_str!("scan_chunk.cu"), ..SCAN };
const SCAN_TILES: Source =
    Source { name: c"scan_tiles", body: include_str!("scan_tiles.cu"), header: OF_TENSORS, ..SCAN };

/// Returns true when [`convolution`] supports these operands.
pub fn takes_convolution(
    x: Columns<'_>,
    state: &Array,
    filter: Filter<'_>,
    lengths: &[i32],
) -> bool {
    let (Ok([b, l, _]), Ok([taps, channels])) = (x.array.dims(), filter.weight.dims()) else {
        return false;
    };
    let fits = x.array.dtype().is_half()
        && filter.fits(x, state, lengths)
        && (2..=MOST_TAPS).contains(&taps);
    let values = i64::from(b) * (i64::from(l) + i64::from(taps)) * i64::from(channels);
    let columns = x.array.shape()[2];
    // Sixteen bytes are read at once.
    let are_aligned = [channels, columns, x.at].iter().all(|count| count % 8 == 0);
    fits && are_aligned && l > 0 && (1..=MOST_VALUES).contains(&values)
}

/// A short causal convolution of each channel by itself: columns `x` of an array of `[b, l, …]`
/// after `state`, `[b, 1, taps - 1, channels]`, by `filter`, to `[b, l, channels]`, and the state
/// afterwards. Of each row so many positions count as `lengths` says; empty: all. The state may
/// share the buffer of `state`, which nothing may read any more.
///
/// # Errors
/// Operands that [`takes_convolution`] rejects; a device without CUDA.
pub fn convolution(
    x: Columns<'_>,
    state: &Array,
    filter: Filter<'_>,
    lengths: &[i32],
) -> Result<[Array; 2]> {
    let Filter { weight, bias, activation } = filter;
    if !takes_convolution(x, state, filter, lengths) {
        return Err(Error::new(format!(
            "no convolution of {x:?} after {state:?} by {filter:?} with lengths {lengths:?}"
        )));
    }
    let Columns { array, at } = x;
    let ([b, l, _], [taps, channels]) = (array.dims()?, weight.dims()?);
    let dtype = array.dtype();
    let of_filter = [
        (c"T", Constant::Type(dtype)),
        (c"TAPS", Constant::Int(taps)),
        (c"X_AT", Constant::Int(at)),
        (c"HAS_BIAS", Constant::Bool(bias.is_some())),
        (c"IS_SILU", Constant::Bool(activation == ConvolutionActivation::Silu)),
    ];
    // What is not there is not looked at.
    let bias = bias.unwrap_or(weight);
    let whole = [b, l, channels];
    let grid_of = |positions: i32| {
        let threads = (i64::from(b) * i64::from(positions) * i64::from(channels) / 8) as i32;
        [(threads + THREADS - 1) / THREADS * THREADS, 1, 1]
    };
    let block = [THREADS, 1, 1];
    if l == 1 && lengths.is_empty() {
        let outputs = [(&whole[..], dtype)];
        let all = Launch { grid: grid_of(1), block, constants: &of_filter, outputs: &outputs };
        return pair(launch(&CONVOLUTION_STEP, &[array, state, weight, bias], &all)?);
    }
    let constants = [&of_filter[..], &[has_lengths(lengths)]].concat();
    let outputs = [(&whole[..], dtype), (state.shape(), dtype)];
    let all =
        Launch { grid: grid_of(l + taps - 1), block, constants: &constants, outputs: &outputs };
    pair(launch(&CONVOLUTION, &[array, state, weight, bias, &counts(lengths)?], &all)?)
}

/// Returns true when [`delta`] supports `rule`.
pub fn takes_delta(rule: &DeltaRule<'_>) -> bool {
    let DeltaRule { mixed, a, b, dt_bias, k_heads, state, .. } = *rule;
    let (Ok([rows, l, _]), Ok([_, v_heads, dv, dk])) = (mixed.dims(), state.dims()) else {
        return false;
    };
    let dtype = mixed.dtype();
    let types_fit = dtype.is_half() && [a, b].iter().all(|of| of.array.dtype() == dtype);
    let heads_fit = k_heads > 0 && v_heads > 0 && v_heads % k_heads == 0;
    let decays_fit = dt_bias.shape() == [v_heads] || dk <= MOST_DECAYS;
    types_fit && heads_fit && rule.fits() && decays_fit && sizes_fit([rows, l, v_heads], [dv, dk])
}

/// The gated delta rule: `[b, l, v_heads · dv]`, and the state afterwards. This shares the buffer
/// of `rule.state`, which nothing may read any more.
///
/// # Errors
/// Operands that [`takes_delta`] rejects; a device without CUDA.
pub fn delta(rule: &DeltaRule<'_>) -> Result<[Array; 2]> {
    if !takes_delta(rule) {
        return Err(Error::new(format!("no delta rule for {rule:?}")));
    }
    let DeltaRule { mixed, a, b, a_log, dt_bias, k_heads, lengths, state } = *rule;
    let ([rows, l, _], [_, v_heads, dv, dk]) = (mixed.dims()?, state.dims()?);
    let decays = dt_bias.size() as i32 / v_heads;
    let way = if decays == 1 { Way::of(mixed, [dv, dk]) } else { Way::without_tensors(l) };
    let mut constants = way.constants(mixed.dtype()).to_vec();
    constants.extend([
        (c"DK", Constant::Int(dk)),
        (c"DV", Constant::Int(dv)),
        (c"K_HEADS", Constant::Int(k_heads)),
        (c"V_HEADS", Constant::Int(v_heads)),
        (c"A_AT", Constant::Int(a.at)),
        (c"B_AT", Constant::Int(b.at)),
        has_lengths(lengths),
    ]);
    let source = match way {
        Way::Positions => &DELTA,
        Way::Tiles => &DELTA_CHUNK,
        Way::Tensors => &DELTA_TILES,
    };
    if way != Way::Tensors {
        constants.push((c"DECAYS", Constant::Int(decays)));
    }
    let (grid, block) = way.grid([rows, v_heads, dv]);
    let whole = [rows, l, v_heads * dv];
    let outputs = [(&whole[..], mixed.dtype())];
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    let inputs = [mixed, a.array, b.array, a_log, dt_bias, state, &counts(lengths)?];
    pair(launch(source, &inputs, &all)?)
}

/// Returns true when [`scan`] supports these operands.
pub fn takes_scan(of: &SelectiveScan<'_>) -> bool {
    let SelectiveScan { mixed, dt, groups, state, .. } = *of;
    let (Ok([rows, l, _]), Ok([_, heads, p, n])) = (mixed.dims(), state.dims()) else {
        return false;
    };
    let dtype = mixed.dtype();
    let types_fit = dtype.is_half() && dt.array.dtype() == dtype;
    let heads_fit = groups > 0 && heads > 0 && heads % groups == 0;
    types_fit && heads_fit && of.fits() && sizes_fit([rows, l, heads], [p, n])
}

/// The selective scan of Mamba 2: `[b, l, heads · head_dim]`, and the state afterwards. This shares
/// the buffer of `of.state`, which nothing may read any more.
///
/// # Errors
/// Operands that [`takes_scan`] rejects; a device without CUDA.
pub fn scan(of: &SelectiveScan<'_>) -> Result<[Array; 2]> {
    if !takes_scan(of) {
        return Err(Error::new(format!("no scan of {of:?}")));
    }
    let SelectiveScan { mixed, dt, a_log, dt_bias, d, groups, limits, lengths, state } = *of;
    let ([rows, l, _], [_, heads, p, n]) = (mixed.dims()?, state.dims()?);
    let [least, largest] = limits;
    let way = Way::of(mixed, [p, n]);
    let mut constants = way.constants(mixed.dtype()).to_vec();
    constants.extend([
        (c"HEADS", Constant::Int(heads)),
        (c"GROUPS", Constant::Int(groups)),
        (c"P", Constant::Int(p)),
        (c"N", Constant::Int(n)),
        (c"DT_AT", Constant::Int(dt.at)),
        (c"LEAST", Constant::Float(least)),
        (c"LARGEST", Constant::Float(largest)),
        has_lengths(lengths),
    ]);
    let source = match way {
        Way::Positions => &SCAN,
        Way::Tiles => &SCAN_CHUNK,
        Way::Tensors => &SCAN_TILES,
    };
    let (grid, block) = way.grid([rows, heads, p]);
    let whole = [rows, l, heads * p];
    let outputs = [(&whole[..], mixed.dtype())];
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    let inputs = [mixed, dt.array, a_log, dt_bias, d, state, &counts(lengths)?];
    pair(launch(source, &inputs, &all)?)
}

/// Returns true when kernels take states of so many rows of `[lines, width]` for each head.
fn sizes_fit([rows, l, heads]: [i32; 3], [lines, width]: [i32; 2]) -> bool {
    matches!(width, 32 | 64 | 96 | 128 | 256)
        && lines > 0
        && lines % SHARE == 0
        && l > 0
        && (1..=MOST_ROWS).contains(&rows)
        && heads <= MOST_ROWS
}

/// How positions are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// One after the other by each warp.
    Positions,
    /// One after the other, from tiles that a block has in shared memory.
    Tiles,
    /// Sixteen at once, from such tiles.
    Tensors,
}

impl Way {
    /// For `mixed`, `[b, l, …]`, and lines of the state of each head of so many values.
    fn of(mixed: &Array, [lines, width]: [i32; 2]) -> Way {
        let way = Way::without_tensors(mixed.shape()[1]);
        let fits =
            mixed.dtype() == Dtype::Bf16 && matches!(width, 64 | 128) && lines % TENSOR_LINES == 0;
        if fits && way == Way::Tiles { Way::Tensors } else { way }
    }

    fn without_tensors(l: i32) -> Way {
        if l < CHUNK_FROM { Way::Positions } else { Way::Tiles }
    }

    /// Constants of kernels that compute this way.
    fn constants(self, dtype: Dtype) -> [(&'static CStr, Constant); 3] {
        let [own, tile] = match self {
            Way::Tensors => [(c"BLOCK_WARPS", TENSOR_WARPS), (c"TILE", TENSOR_TILE)],
            _ => [(c"SHARE", SHARE), (c"TILE", TILE)],
        };
        let number = |(name, value): (&'static CStr, i32)| (name, Constant::Int(value));
        [(c"T", Constant::Type(dtype)), number(own), number(tile)]
    }

    /// The grid for so many lines of the state of each head of each row, and its blocks.
    fn grid(self, [rows, heads, lines]: [i32; 3]) -> ([i32; 3], [i32; 3]) {
        let (threads, of_block) = match self {
            Way::Tensors => (TENSOR_WARPS * LANES, TENSOR_LINES),
            _ => (THREADS, SHARE * WARPS),
        };
        let blocks = (lines + of_block - 1) / of_block;
        ([threads * blocks, heads, rows], [threads, 1, 1])
    }
}
