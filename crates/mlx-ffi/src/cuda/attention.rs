//! Attention for one new position of each row.

use std::ffi::CStr;

use super::constants::{LANES, MOST_SPLITS, WARPS};
use super::kernel::{Constant, Launch, Source};
use super::launch::launch;
use crate::step::{Counters, HeadNorms, Packing, Step};
use crate::{Array, Dtype, Error, QuantMode, Quantization, Result};

/// Blocks that keep a large device busy: two on each multiprocessor, or one where it has many
/// registers.
const BLOCKS: i32 = 264;
/// Multiprocessors of a large device.
const MULTIPROCESSORS: i32 = 132;
/// Values of a head for which a multiprocessor has registers for one block alone.
const ONE_BLOCK_FROM: i32 = 128;
/// Positions of a buffer that are worth a block of their own.
const WORTH_A_BLOCK: i32 = 64;
/// Positions of a buffer up to which blocks would wait for each other longer than they save, on the
/// tensor cores: Qwen3-0.6B decodes at 1,124 tokens/s behind 128 ids with one block a head and at
/// 1,030 with several, behind 1,024 at 845 and 1,064 (H100). Heads that are read by lanes take
/// fewer keys at a time, and are split as before.
const MOST_UNSPLIT: i32 = 512;
/// Positions of a buffer up to which a row is not split where rows are so many that their blocks
/// fill a device: 64 rows of 576 positions each take a step of 2.3 ms so, and of 2.7 in two parts
/// (Qwen3-0.6B, H200).
const MOST_WHOLE: i32 = 1024;
/// Positions that a part of a row has at least in longer buffers: a row that is longer than others
/// would keep all of them waiting. 64 rows of 16 to 3,600 positions take a step of 2.7 ms so, and
/// of 4.8 in one part each. 32 rows of 2,100 positions each lose 3 %.
const LONG_SHARE: i32 = 512;
/// The most parts of a row there.
const MOST_LONG_SPLITS: i32 = 16;
/// Keys that a warp multiplies at once on the tensor cores.
const KEYS_OF_TILE: i32 = 16;
/// Values of a group of packed keys that the tensor cores take.
const TILED_GROUP: i32 = 64;
/// The most heads of all rows.
const MOST_COUNTED: i32 = 1 << 16;

/// The text of kernels whose body says in one file how keys and values are held.
macro_rules! step_source {
    (name: $name:literal, held: $held:literal, header: [$($header:literal),*], inputs: [$($input:literal),*], written: $written:expr) => {
        Source {
            name: $name,
            inputs: &[
                c"q", c"k", c"v", c"keys", c"values", c"at", c"rows", c"counters", c"radians",
                c"q_norm", c"k_norm", c"v_norm", c"sinks", $($input),*
            ],
            outputs: &[c"out", c"sums", c"parts"],
            body: concat!(
                include_str!("step_begin.cu"),
                include_str!($held),
                include_str!("step_attention.cu")
            ),
            header: concat!(
                include_str!("chained.cu"),
                include_str!("common.cu"),
                include_str!("tensor.cu"),
                include_str!("head.cu"),
                include_str!("step_lanes.cu"),
                include_str!("step_tiles.cu"),
                $(include_str!($header)),*
            ),
            takes_strides: true,
            written: $written,
        }
    };
}

const STEP: Source = step_source! {
    name: c"step_attention",
    held: "step_held.cu",
    header: [],
    inputs: [],
    written: &[3, 4]
};
const PACKED_STEP: Source = step_source! {
    name: c"packed_step_attention",
    held: "step_packed_held.cu",
    header: ["step_packed.cu", "step_packed_tiles.cu"],
    inputs: [c"key_scales", c"key_biases", c"value_scales", c"value_biases"],
    written: &[3, 4, 13, 14, 15, 16]
};

/// Returns true when [`step_attention`] has a kernel for heads of so many values, of this type.
pub fn attends(head_dim: i32, dtype: Dtype) -> bool {
    matches!(head_dim, 32 | 64 | 128 | 256 | 512) && dtype.is_half()
}

/// Returns true when these kernels also take keys and values that are packed so.
pub fn attends_packed(head_dim: i32, quantization: Quantization) -> bool {
    let Quantization { mode, bits, group_size } = quantization;
    let is_known = mode == QuantMode::Affine && matches!(bits, 4 | 8);
    is_known && matches!(group_size, 32 | 64) && head_dim % group_size == 0
}

/// The outcome of attention for new positions of each row.
#[derive(Debug)]
pub struct Attended {
    /// `[b, l, n_heads · d]`.
    pub out: Array,
    /// The buffers with the new positions: keys and values, or for packed ones the codes, scales
    /// and biases of the keys, and then those of the values.
    pub buffers: Vec<Array>,
}

/// Values of a head from which on a block has fewer warps, so that what they find fits into its
/// shared memory.
const WIDE_FROM: i32 = 512;

/// Norms and rotates, writes key and value at `at` and attends to all from each row's first
/// position to the new one. Its buffers are those of `step`, of which nothing may read that
/// position before. There are at least `b · n_heads` of `counters`.
///
/// # Errors
/// Shapes or types that do not fit; a device without CUDA.
pub fn step_attention(step: &Step<'_>, counters: &Counters) -> Result<Attended> {
    attention(step, counters, false)
}

/// [`step_attention`] over keys and values of another layer, which wrote those of the new position:
/// `[b, 1, n_heads · d]`. What `step` says of its own is not looked at.
///
/// # Errors
/// Shapes or types that do not fit; a device without CUDA.
pub fn borrowed_step_attention(step: &Step<'_>, counters: &Counters) -> Result<Array> {
    let norms = step.norms.map(|norms| HeadNorms { v: None, ..norms });
    Ok(attention(&Step { norms, ..*step }, counters, true)?.out)
}

fn attention(step: &Step<'_>, counters: &Counters, borrows: bool) -> Result<Attended> {
    let Step { q, k, v, n_heads, keys, values, on_device, rows, .. } = *step;
    let [b, n_kv_heads, capacity, d] = step.sizes(1)?;
    let dtype = step.dtype();
    let counted = i64::from(b) * i64::from(n_heads);
    let counters_fit = counters.count() as i64 >= counted && counted <= i64::from(MOST_COUNTED);
    let quantization = step.packing.map(|packing| packing.quantization);
    let is_known = attends(d, dtype) && quantization.is_none_or(|of| attends_packed(d, of));
    if !(is_known && counters_fit && are_aligned(step) && sinks_fit(step)) {
        return Err(step.misfit());
    }
    let shared_by = n_heads / n_kv_heads;
    let group_size = quantization.map_or(TILED_GROUP, |of| of.group_size);
    let is_tiled = matches!(d, 64 | 128) && group_size == TILED_GROUP;
    // On the tensor cores, as many heads as a block has warps; else as many as leave registers for
    // a second block.
    let most = match d {
        _ if is_tiled => WARPS,
        32 => 4,
        _ => 2,
    };
    let group = (1..=most).rev().find(|group| shared_by % group == 0).unwrap_or(1);
    let blocks = b * n_heads / group;
    // By what the buffers hold, so that the steps that they have room for are launched alike.
    let most_blocks = if is_tiled && d >= ONE_BLOCK_FROM { BLOCKS / 2 } else { BLOCKS };
    let splits = match capacity {
        ..=MOST_UNSPLIT if is_tiled => 1,
        _ => (most_blocks / blocks).min(capacity / WORTH_A_BLOCK).clamp(1, MOST_SPLITS),
    };
    let seen = step.window.map_or(capacity, |window| window.min(capacity));
    // Few of them, as each is compiled by itself.
    let share = (seen + MOST_LONG_SPLITS - 1) / MOST_LONG_SPLITS;
    let share = (share as u32).next_power_of_two().cast_signed().max(LONG_SHARE);
    let long_splits = (seen + share - 1) / share;
    let (splits, least) = match seen > MOST_WHOLE && b > 1 && splits == 1 {
        true => (long_splits, share),
        false => (splits, 1),
    };
    let warps = match splits > 1 {
        true if least > 1 => warps_for(blocks).max(group),
        true => WARPS,
        false => warps_for(blocks),
    };
    let warps = if d < WIDE_FROM { warps } else { warps.min(WARPS / 2) };
    let constants = [
        &making(step, d)[..],
        &scoring(step),
        &[
            (c"GROUP", Constant::Int(group)),
            (c"SHARED_BY", Constant::Int(shared_by)),
            (c"TILED", Constant::Bool(is_tiled)),
            (c"BLOCK_WARPS", Constant::Int(warps)),
            (c"LEAST_SHARE", Constant::Int(least)),
            (c"V_NORM", Constant::Bool(step.norms_values())),
            (c"BORROWS", Constant::Bool(borrows)),
        ],
        &quantization.map_or(Vec::new(), |of| {
            // More than a warp has at a time would leave others without any.
            let tiles = if capacity / splits > WARPS * KEYS_OF_TILE { 2 } else { 1 };
            vec![
                (c"BITS", Constant::Int(of.bits)),
                (c"SIZE", Constant::Int(of.group_size)),
                (c"TILES", Constant::Int(tiles)),
            ]
        }),
    ]
    .concat();
    let whole = [b, 1, n_heads * d];
    let (sums, parts) = match splits > 1 {
        true => ([b, n_heads, splits, d], [b, n_heads, splits, 2]),
        false => ([1; 4], [1; 4]),
    };
    let outputs: [(&[i32], Dtype); 3] =
        [(&whole, dtype), (&sums, Dtype::F32), (&parts, Dtype::F32)];
    let threads = warps * LANES;
    let grid = [threads * splits, n_heads / group, b];
    let all = Launch { grid, block: [threads, 1, 1], constants: &constants, outputs: &outputs };
    let [radians, q_norm, k_norm] = made_with(step);
    let mut inputs = vec![
        q.array,
        k.array,
        v.array,
        keys,
        values,
        on_device,
        rows,
        counters.array(),
        radians,
        q_norm,
        k_norm,
        step.norms.and_then(|norms| norms.v).unwrap_or(q.array),
        step.sinks.unwrap_or(q.array),
    ];
    inputs.extend(step.packing.iter().flat_map(Packing::arrays));
    let source = if step.packing.is_some() { &PACKED_STEP } else { &STEP };
    let mut found = launch(source, &inputs, &all)?.into_iter();
    let (Some(out), Some(_), Some(_)) = (found.next(), found.next(), found.next()) else {
        return Err(Error::new("a step of attention lost a result"));
    };
    let buffers: Vec<Array> = found.collect();
    Ok(Attended { out, buffers: by_parts(buffers, step.packing.is_some()) })
}

/// The buffers as caches hold them: what belongs to keys stands before what belongs to values.
fn by_parts(mut buffers: Vec<Array>, are_packed: bool) -> Vec<Array> {
    if are_packed && buffers.len() > 1 {
        let values = buffers.remove(1);
        buffers.insert(3.min(buffers.len()), values);
    }
    buffers
}

/// Warps of each of so many blocks. A block begins by norming and rotating heads and ends by adding
/// up what its warps found. Where there are many blocks, small ones do that beside others that read
/// keys.
fn warps_for(blocks: i32) -> i32 {
    if blocks <= MULTIPROCESSORS {
        WARPS
    } else if blocks <= 2 * MULTIPROCESSORS {
        WARPS / 2
    } else {
        WARPS / 4
    }
}

/// Returns true when sixteen bytes can be read at once of each head.
pub(super) fn are_aligned(step: &Step<'_>) -> bool {
    [step.q, step.k, step.v].iter().all(|heads| heads.at % 8 == 0)
}

/// Returns true when there are no sinks, or one for each head, of the keys' type.
pub(super) fn sinks_fit(step: &Step<'_>) -> bool {
    let fit = |sinks: &Array| sinks.shape() == [step.n_heads] && sinks.dtype() == step.dtype();
    step.sinks.is_none_or(fit)
}

/// Constants of kernels that make heads of `d` values.
pub(super) fn making(step: &Step<'_>, d: i32) -> [(&'static CStr, Constant); 10] {
    let Step { q, k, v, turn, norms, .. } = *step;
    let dims = turn.map_or(0, |turn| 2 * turn.radians.size() as i32);
    [
        (c"T", Constant::Type(step.dtype())),
        (c"D", Constant::Int(d)),
        (c"NORM", Constant::Bool(norms.is_some())),
        (c"EPS", Constant::Float(norms.map_or(0.0, |norms| norms.eps))),
        (c"DIMS", Constant::Int(dims)),
        (c"SPEED", Constant::Float(turn.map_or(0.0, |turn| turn.scale))),
        (c"MAGNITUDE", Constant::Float(turn.map_or(0.0, |turn| turn.magnitude))),
        (c"Q_AT", Constant::Int(q.at)),
        (c"K_AT", Constant::Int(k.at)),
        (c"V_AT", Constant::Int(v.at)),
    ]
}

/// Constants of kernels that make scores.
pub(super) fn scoring(step: &Step<'_>) -> [(&'static CStr, Constant); 4] {
    [
        (c"WINDOW", Constant::Int(step.window.unwrap_or(0))),
        (c"SCALE", Constant::Float(step.scale)),
        (c"SOFTCAP", Constant::Float(step.softcap.unwrap_or(0.0))),
        (c"HAS_SINKS", Constant::Bool(step.sinks.is_some())),
    ]
}

/// The radians and the weights of both norms. What is not there is not looked at.
pub(super) fn made_with<'a>(step: &Step<'a>) -> [&'a Array; 3] {
    let radians = step.turn.map_or(step.rows, |turn| turn.radians);
    let none = step.q.array;
    let (q_norm, k_norm) = step.norms.map_or((none, none), |norms| (norms.q, norms.k));
    [radians, q_norm, k_norm]
}
