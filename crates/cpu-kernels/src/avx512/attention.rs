//! The two products of attention: queries with keys, and weights with values.

use std::arch::x86_64::*;
use std::cell::RefCell;
use std::ops::Range;

use super::dense::{add_products, load, step_size};
use super::lanes::{Line, sum_lanes};
use super::scales::floats;
use crate::Dtype;
use crate::attention::task::{Attention, Mix, Tile};
use crate::kind::{FROM_BF16, FROM_F16, FROM_F32, PAIRS};
use crate::values::widen;

/// Values in a line of floats.
const LANES: usize = 16;

thread_local! {
    static QUERIES: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// `[tile.count, keys]` products of q and k.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
pub(crate) fn products(task: &Attention<'_>, tile: &Tile, keys: Range<usize>, out: &mut [f32]) {
    match task.dtype {
        Dtype::Bf16 => products_of::<PAIRS>(task, tile, keys, out),
        Dtype::F16 => products_of::<FROM_F16>(task, tile, keys, out),
        Dtype::F32 => products_of::<FROM_F32>(task, tile, keys, out),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
fn products_of<const KIND: u8>(
    task: &Attention<'_>,
    tile: &Tile,
    keys: Range<usize>,
    out: &mut [f32],
) {
    QUERIES.with_borrow_mut(|lines| {
        let in_line = if KIND == PAIRS { 2 * LANES } else { LANES };
        let in_row = task.d.div_ceil(in_line);
        lines.clear();
        for i in 0..tile.count {
            let row = &tile.query(task, i)[..task.d * task.dtype.size()];
            for part in row.chunks(in_line * task.dtype.size()) {
                lines.push(line::<KIND>(task.dtype, part));
            }
        }
        let lines = &lines[..tile.count * in_row];
        match tile.count {
            1 => rows::<KIND, 1>(task, tile, lines, keys, out),
            2 => rows::<KIND, 2>(task, tile, lines, keys, out),
            3 => rows::<KIND, 3>(task, tile, lines, keys, out),
            4 => rows::<KIND, 4>(task, tile, lines, keys, out),
            5 => rows::<KIND, 5>(task, tile, lines, keys, out),
            _ => rows::<KIND, 6>(task, tile, lines, keys, out),
        }
    });
}

/// Part of a row of q, filled up with zeros.
fn line<const KIND: u8>(dtype: Dtype, part: &[u8]) -> Line {
    if KIND == PAIRS {
        let mut bytes = [0; 64];
        bytes[..part.len()].copy_from_slice(part);
        let (words, _) = bytes.as_chunks::<4>();
        return Line(std::array::from_fn(|i| u32::from_le_bytes(words[i])));
    }
    let mut values = [0.0; LANES];
    widen(dtype, part, &mut values);
    Line(values.map(f32::to_bits))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
fn rows<const KIND: u8, const M: usize>(
    task: &Attention<'_>,
    tile: &Tile,
    lines: &[Line],
    keys: Range<usize>,
    out: &mut [f32],
) {
    let (width, row_size, size) = (keys.len(), task.d * task.dtype.size(), step_size(KIND));
    let steps = row_size / size;
    let in_row = lines.len() / M;
    let mut q: [&[Line]; M] = [&[]; M];
    for i in 0..M {
        q[i] = &lines[i * in_row..][..in_row];
    }
    for first in (0..width).step_by(4) {
        let count = 4.min(width - first);
        let mut k: [&[u8]; 4] = [&[]; 4];
        for j in 0..4 {
            // Missing keys repeat the last one.
            let key = keys.start + first + j.min(count - 1);
            k[j] = &task.k.from(task.dtype, tile.row, tile.kv_head, key)[..row_size];
        }
        let mut totals = [[_mm512_setzero_ps(); 4]; M];
        for step in 0..steps {
            let k0 = load::<KIND>(&k[0][step * size..][..size]);
            let k1 = load::<KIND>(&k[1][step * size..][..size]);
            let k2 = load::<KIND>(&k[2][step * size..][..size]);
            let k3 = load::<KIND>(&k[3][step * size..][..size]);
            for i in 0..M {
                let q = &q[i][step];
                totals[i][0] = add_products::<KIND>(totals[i][0], q, k0);
                totals[i][1] = add_products::<KIND>(totals[i][1], q, k1);
                totals[i][2] = add_products::<KIND>(totals[i][2], q, k2);
                totals[i][3] = add_products::<KIND>(totals[i][3], q, k3);
            }
        }
        if steps * size < row_size {
            for j in 0..4 {
                let mut rest = [0; 64];
                rest[..row_size - steps * size].copy_from_slice(&k[j][steps * size..]);
                let k = load::<KIND>(&rest[..size]);
                for i in 0..M {
                    totals[i][j] = add_products::<KIND>(totals[i][j], &q[i][steps], k);
                }
            }
        }
        for i in 0..M {
            let mut sums = [0.0; 4];
            // SAFETY: the array has 16 bytes.
            unsafe { _mm_storeu_ps(sums.as_mut_ptr(), sum_lanes(totals[i])) };
            out[i * width + first..][..count].copy_from_slice(&sums[..count]);
        }
    }
}

/// Adds the values of `mix.keys`, by their weights, to `acc`, `[rows, columns]`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
pub(crate) fn add_values(task: &Attention<'_>, tile: &Tile, mix: &Mix<'_>, acc: &mut [f32]) {
    match task.dtype {
        Dtype::Bf16 => add_values_of::<FROM_BF16>(task, tile, mix, acc),
        Dtype::F16 => add_values_of::<FROM_F16>(task, tile, mix, acc),
        Dtype::F32 => add_values_of::<FROM_F32>(task, tile, mix, acc),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
fn add_values_of<const KIND: u8>(
    task: &Attention<'_>,
    tile: &Tile,
    mix: &Mix<'_>,
    acc: &mut [f32],
) {
    match mix.weights.len() {
        1 => columns::<KIND, 1>(task, tile, mix, acc),
        2 => columns::<KIND, 2>(task, tile, mix, acc),
        3 => columns::<KIND, 3>(task, tile, mix, acc),
        4 => columns::<KIND, 4>(task, tile, mix, acc),
        5 => columns::<KIND, 5>(task, tile, mix, acc),
        _ => columns::<KIND, 6>(task, tile, mix, acc),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
fn columns<const KIND: u8, const M: usize>(
    task: &Attention<'_>,
    tile: &Tile,
    mix: &Mix<'_>,
    acc: &mut [f32],
) {
    let width = mix.columns.len();
    let mut at = 0;
    while at < width {
        let left = width - at;
        // As many sums as there are registers for.
        if M <= 3 && left >= 8 * LANES {
            block::<KIND, M, 8>(task, tile, mix, at, acc);
            at += 8 * LANES;
        } else if left >= 4 * LANES {
            block::<KIND, M, 4>(task, tile, mix, at, acc);
            at += 4 * LANES;
        } else {
            block::<KIND, M, 1>(task, tile, mix, at, acc);
            at += LANES;
        }
    }
}

/// `V` lines of columns from `at` on; a single one may be shorter than a line.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
fn block<const KIND: u8, const M: usize, const V: usize>(
    task: &Attention<'_>,
    tile: &Tile,
    mix: &Mix<'_>,
    at: usize,
    acc: &mut [f32],
) {
    let (width, size) = (mix.columns.len(), task.dtype.size());
    let count = (V * LANES).min(width - at);
    let short = count < V * LANES;
    let mask = if short { (1u16 << count) - 1 } else { u16::MAX };
    let mut weights: [&[f32]; M] = [&[]; M];
    for i in 0..M {
        weights[i] = &mix.weights[i][..mix.keys.len()];
    }
    let mut sums = [[_mm512_setzero_ps(); V]; M];
    for i in 0..M {
        let acc = &acc[i * width + at..][..count];
        for j in 0..V {
            // SAFETY: the mask lets only the `count` values of the slice be read.
            sums[i][j] = unsafe { _mm512_maskz_loadu_ps(mask, acc.as_ptr().add(j * LANES)) };
        }
    }
    let first = (mix.columns.start + at) * size;
    for (index, key) in mix.keys.clone().enumerate() {
        let values = &task.v.from(task.dtype, tile.row, tile.kv_head, key)[first..][..count * size];
        let mut lines = [_mm512_setzero_ps(); V];
        if short {
            lines[0] = floats(task.dtype, values, 0, count);
        } else {
            for j in 0..V {
                lines[j] = load::<KIND>(&values[j * LANES * size..][..LANES * size]);
            }
        }
        for i in 0..M {
            let weight = _mm512_set1_ps(weights[i][index]);
            for j in 0..V {
                sums[i][j] = _mm512_fmadd_ps(weight, lines[j], sums[i][j]);
            }
        }
    }
    for i in 0..M {
        let acc = &mut acc[i * width + at..][..count];
        for j in 0..V {
            // SAFETY: the mask lets only the `count` values of the slice be written.
            unsafe { _mm512_mask_storeu_ps(acc.as_mut_ptr().add(j * LANES), mask, sums[i][j]) };
        }
    }
}
