//! Layers with a recurrent state.

use super::kernel::launch;
use super::text::{LANES, SIMD_GROUPS, Source};
use crate::cpu::{ConvolutionActivation, DeltaRule, Filter, SelectiveScan};
use crate::custom_kernel::{Constant, Launch, counts, has_lengths, pair};
use crate::step::Heads as Columns;
use crate::{Array, Dtype, Result};

/// Lines of a head's state that a SIMD group holds.
const SHARE: i32 = 4;
/// From so many positions on, a threadgroup takes them in tiles.
const TILES_FROM: i32 = 8;
/// Bytes of a threadgroup's memory that tiles may take: each Apple GPU has 32 KiB.
const TILE_BYTES: i32 = 31 << 10;
/// The most columns of a state: a lane holds an eighth of a line in registers.
const MOST_COLUMNS: i32 = 256;
/// The most taps of a convolution.
const MOST_TAPS: i32 = 16;

const CONVOLUTION: Source = Source {
    name: c"ml_convolution",
    inputs: &[c"x", c"state", c"weight", c"bias", c"lengths"],
    outputs: &[c"out", c"next"],
    body: include_str!("convolution.metal"),
};
const DELTA: Source = Source {
    name: c"ml_delta",
    inputs: &[c"mixed", c"a", c"b", c"a_log", c"dt_bias", c"state", c"lengths"],
    outputs: &[c"out", c"next"],
    body: include_str!("delta.metal"),
};
const DELTA_TILES: Source =
    Source { name: c"ml_delta_tiles", body: include_str!("delta_tiles.metal"), ..DELTA };
const SCAN: Source = Source {
    name: c"ml_scan",
    inputs: &[c"mixed", c"dt", c"a_log", c"dt_bias", c"d", c"state", c"lengths"],
    outputs: &[c"out", c"next"],
    body: include_str!("scan.metal"),
};

/// A short causal convolution of each channel by itself: columns `x` of an array of `[b, l, …]`
/// after `state`, `[b, 1, taps - 1, channels]`, by `filter`, to `[b, l, channels]`, and the state
/// afterwards. Of each row so many positions count as `lengths` says; empty: all.
///
/// # Errors
/// Those of MLX.
pub fn convolution(
    x: Columns<'_>,
    state: &Array,
    filter: Filter<'_>,
    lengths: &[i32],
) -> Result<Option<[Array; 2]>> {
    let Filter { weight, bias, activation } = filter;
    let Columns { array, at } = x;
    let (Ok([b, l, _]), Ok([taps, channels])) = (array.dims(), weight.dims()) else {
        return Ok(None);
    };
    let dtype = array.dtype();
    let fits = is_float(dtype)
        && filter.fits(x, state, lengths)
        && (2..=MOST_TAPS).contains(&taps)
        && [b, l, channels].iter().all(|size| *size > 0);
    if !fits {
        return Ok(None);
    }
    let constants = [
        (c"T", Constant::Type(dtype)),
        (c"TAPS", Constant::Int(taps)),
        (c"X_AT", Constant::Int(at)),
        (c"HAS_BIAS", Constant::Bool(bias.is_some())),
        (c"IS_SILU", Constant::Bool(activation == ConvolutionActivation::Silu)),
        has_lengths(lengths),
    ];
    let whole = [b, l, channels];
    let grid = [channels, l + taps - 1, b];
    let block = [channels.min(LANES * SIMD_GROUPS), 1, 1];
    let outputs = [(&whole[..], dtype), (state.shape(), dtype)];
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    // What is not there is not looked at.
    let bias = bias.unwrap_or(weight);
    pair(launch(&CONVOLUTION, &[array, state, weight, bias, &counts(lengths)?], &all)?).map(Some)
}

/// The gated delta rule: `[b, l, v_heads · dv]`, and the state afterwards.
///
/// # Errors
/// Those of MLX.
pub fn delta(rule: &DeltaRule<'_>) -> Result<Option<[Array; 2]>> {
    delta_by(rule, [&DELTA, &DELTA_TILES])
}

/// [`delta`] by these kernels: for few positions, and for many.
fn delta_by(rule: &DeltaRule<'_>, [of_few, of_many]: [&Source; 2]) -> Result<Option<[Array; 2]>> {
    let DeltaRule { mixed, a, b, a_log, dt_bias, k_heads, lengths, state } = *rule;
    let (Ok([rows, l, _]), Ok([_, v_heads, dv, dk])) = (mixed.dims(), state.dims()) else {
        return Ok(None);
    };
    let dtype = mixed.dtype();
    let types_fit = is_float(dtype) && [a, b].iter().all(|of| is_float(of.array.dtype()));
    let heads_fit = k_heads > 0 && v_heads > 0 && v_heads % k_heads == 0;
    if !(types_fit && heads_fit && rule.fits() && takes_state([rows, l], [dv, dk])) {
        return Ok(None);
    }
    let decays = dt_bias.size() as i32 / v_heads;
    let mut constants = vec![
        (c"T", Constant::Type(dtype)),
        (c"SIMD_GROUPS", Constant::Int(SIMD_GROUPS)),
        (c"SHARE", Constant::Int(SHARE)),
        (c"DK", Constant::Int(dk)),
        (c"DV", Constant::Int(dv)),
        (c"K_HEADS", Constant::Int(k_heads)),
        (c"V_HEADS", Constant::Int(v_heads)),
        (c"DECAYS", Constant::Int(decays)),
        (c"A_AT", Constant::Int(a.at)),
        (c"B_AT", Constant::Int(b.at)),
        has_lengths(lengths),
    ];
    let mut source = of_few;
    if l >= TILES_FROM {
        source = of_many;
        constants.push((c"TILE", Constant::Int(tile(dk, decays > 1))));
    }
    let whole = [rows, l, v_heads * dv];
    let outputs = [(&whole[..], dtype), (state.shape(), Dtype::F32)];
    let (grid, block) = grid([rows, v_heads, dv]);
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    let inputs = [mixed, a.array, b.array, a_log, dt_bias, state, &counts(lengths)?];
    pair(launch(source, &inputs, &all)?).map(Some)
}

/// The selective scan of Mamba 2: `[b, l, heads · head_dim]`, and the state afterwards.
///
/// # Errors
/// Those of MLX.
pub fn scan(of: &SelectiveScan<'_>) -> Result<Option<[Array; 2]>> {
    let SelectiveScan { mixed, dt, a_log, dt_bias, d, groups, limits, lengths, state } = *of;
    let (Ok([rows, l, _]), Ok([_, heads, p, n])) = (mixed.dims(), state.dims()) else {
        return Ok(None);
    };
    let dtype = mixed.dtype();
    let types_fit = is_float(dtype) && is_float(dt.array.dtype());
    let heads_fit = groups > 0 && heads > 0 && heads % groups == 0;
    if !(types_fit && heads_fit && of.fits() && takes_state([rows, l], [p, n])) {
        return Ok(None);
    }
    let [least, largest] = limits;
    let constants = [
        (c"T", Constant::Type(dtype)),
        (c"SIMD_GROUPS", Constant::Int(SIMD_GROUPS)),
        (c"SHARE", Constant::Int(SHARE)),
        (c"HEADS", Constant::Int(heads)),
        (c"GROUPS", Constant::Int(groups)),
        (c"P", Constant::Int(p)),
        (c"N", Constant::Int(n)),
        (c"DT_AT", Constant::Int(dt.at)),
        (c"LEAST", Constant::Float(least)),
        (c"LARGEST", Constant::Float(largest)),
        has_lengths(lengths),
    ];
    let whole = [rows, l, heads * p];
    let outputs = [(&whole[..], dtype), (state.shape(), Dtype::F32)];
    let (grid, block) = grid([rows, heads, p]);
    let all = Launch { grid, block, constants: &constants, outputs: &outputs };
    let inputs = [mixed, dt.array, a_log, dt_bias, d, state, &counts(lengths)?];
    pair(launch(&SCAN, &inputs, &all)?).map(Some)
}

/// Returns true for the types in which activations come.
pub(super) fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::Bf16)
}

/// Returns true when kernels hold states of `[lines, columns]` for so many rows and positions.
fn takes_state([rows, l]: [i32; 2], [lines, columns]: [i32; 2]) -> bool {
    rows > 0 && l > 0 && lines > 0 && (1..=MOST_COLUMNS).contains(&columns)
}

/// Positions of a tile of the delta rule, a multiple of a threadgroup's SIMD groups: queries, keys
/// and perhaps decays of so many columns fit into its memory.
fn tile(columns: i32, has_decays: bool) -> i32 {
    let padded = (columns + LANES - 1) / LANES * LANES;
    let of_position = 4 * (padded * (2 + i32::from(has_decays)) + 2 * SHARE * SIMD_GROUPS + 3);
    let fitting = TILE_BYTES / of_position / SIMD_GROUPS * SIMD_GROUPS;
    fitting.clamp(SIMD_GROUPS, 2 * SIMD_GROUPS)
}

/// The grid for so many lines of the state of each head of each row, and its threadgroups.
fn grid([rows, heads, lines]: [i32; 3]) -> ([i32; 3], [i32; 3]) {
    let (threads, of_group) = (SIMD_GROUPS * LANES, SHARE * SIMD_GROUPS);
    let groups = (lines + of_group - 1) / of_group;
    ([threads * groups, heads, rows], [threads, 1, 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fit_into_a_threadgroup_s_memory() {
        for columns in 1..=MOST_COLUMNS {
            for has_decays in [false, true] {
                let tile = tile(columns, has_decays);
                let padded = (columns + 31) / 32 * 32;
                let columns_of_all = padded * if has_decays { 3 } else { 2 };
                let bytes = 4 * tile * (columns_of_all + 2 * SHARE * SIMD_GROUPS + 3);
                assert!(bytes <= 32 << 10 && tile % SIMD_GROUPS == 0, "{columns}: {bytes}");
            }
        }
        assert_eq!([tile(128, false), tile(128, true), tile(256, true)], [16, 16, 8]);
    }

    #[test]
    fn a_barrier_that_is_missing_shows() {
        const BARRIER: &str = "metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);";
        crate::use_device(crate::Device::Cpu).expect("a CPU");
        let values = |shape: &[i32], speed: f32| {
            let count = shape.iter().product::<i32>();
            let values: Vec<f32> = (0..count).map(|i| (i as f32 * speed).sin()).collect();
            Array::from_f32(&values, shape).expect("values")
        };
        let (mixed, gates) = (values(&[1, 40, 96], 0.37), values(&[1, 40, 1], 0.11));
        let (of_head, state) = (values(&[1], 0.5), values(&[1, 1, 32, 32], 0.23));
        let columns = Columns { array: &gates, at: 0 };
        let rule = DeltaRule {
            mixed: &mixed,
            a: columns,
            b: columns,
            a_log: &of_head,
            dt_bias: &of_head,
            k_heads: 1,
            lengths: &[],
            state: &state,
        };
        let body = DELTA_TILES.body;
        assert_eq!(body.matches(BARRIER).count(), 2);
        let found = |body: &'static str| {
            let source = Source { name: c"ml_delta_tiles", body, ..DELTA };
            let [out, next] = delta_by(&rule, [&DELTA, &source])?.expect("a kernel");
            crate::eval_all([&out, &next])
        };
        found(body).expect("with both barriers");
        for (at, _) in body.match_indices(BARRIER) {
            let (before, after) = (&body[..at], &body[at + BARRIER.len()..]);
            let without = Box::leak(format!("{before}{after}").into_boxed_str());
            let error = found(without).expect_err("one is missing").to_string();
            assert!(error.contains("depends on the order of warps"), "{error}");
        }
    }
}
