//! The kernels in plain Rust, which the compiler turns into the vectors of a level.

use std::ops::Range;

use super::task::{Attention, Mix, Tile};
use crate::functions::add_product;
use crate::values::widen;

/// Keys that are widened and multiplied at a time.
const KEYS: usize = 4;
/// Rows that are multiplied with them at a time.
const ROWS: usize = 3;
/// Sums that each product is made of.
const LANES: usize = 8;

/// `[tile.count, keys]` products of q and k.
#[inline(always)]
pub(super) fn scores<const FMA: bool>(
    task: &Attention<'_>,
    tile: &Tile,
    keys: Range<usize>,
    out: &mut [f32],
) {
    let (d, dtype, width) = (task.d, task.dtype, keys.len());
    let mut q = vec![0.0; tile.count * d];
    for (i, to) in q.chunks_exact_mut(d.max(1)).enumerate() {
        widen(dtype, &tile.query(task, i)[..d * dtype.size()], to);
    }
    let mut panel = vec![0.0; KEYS * d];
    for first in (0..width).step_by(KEYS) {
        let count = KEYS.min(width - first);
        for (i, to) in panel.chunks_exact_mut(d.max(1)).take(count).enumerate() {
            let key = task.k.from(dtype, tile.row, tile.kv_head, keys.start + first + i);
            widen(dtype, &key[..d * dtype.size()], to);
        }
        // Missing keys repeat the last one.
        let k: [&[f32]; KEYS] = std::array::from_fn(|j| &panel[j.min(count - 1) * d..][..d]);
        let mut store = |row: usize, sums: [f32; KEYS]| {
            out[row * width + first..][..count].copy_from_slice(&sums[..count]);
        };
        let mut row = 0;
        while row + ROWS <= tile.count {
            let q: [&[f32]; ROWS] = std::array::from_fn(|i| &q[(row + i) * d..][..d]);
            for (i, sums) in dots::<FMA, ROWS>(q, k).into_iter().enumerate() {
                store(row + i, sums);
            }
            row += ROWS;
        }
        for row in row..tile.count {
            store(row, dots::<FMA, 1>([&q[row * d..][..d]], k)[0]);
        }
    }
}

/// Adds the values of `mix.keys`, by their weights, to `acc`, `[rows, columns]`.
#[inline(always)]
pub(super) fn add_values<const FMA: bool>(
    task: &Attention<'_>,
    tile: &Tile,
    mix: &Mix<'_>,
    acc: &mut [f32],
) {
    let (width, size) = (mix.columns.len(), task.dtype.size());
    let mut values = vec![0.0; width];
    for (i, key) in mix.keys.clone().enumerate() {
        let value = task.v.from(task.dtype, tile.row, tile.kv_head, key);
        widen(task.dtype, &value[mix.columns.start * size..][..width * size], &mut values);
        for (weights, acc) in mix.weights.iter().zip(acc.chunks_exact_mut(width)) {
            let weight = weights[i];
            for (sum, &value) in acc.iter_mut().zip(&values) {
                *sum = add_product::<FMA>(weight, value, *sum);
            }
        }
    }
}

/// The dot products of each row of x with each row of weights.
#[inline(always)]
fn dots<const FMA: bool, const M: usize>(x: [&[f32]; M], w: [&[f32]; KEYS]) -> [[f32; KEYS]; M] {
    let x = x.map(|row| row.as_chunks::<LANES>());
    let w = w.map(|row| row.as_chunks::<LANES>());
    let steps = w[0].0.len();
    let (xv, wv) = (x.map(|x| &x.0[..steps]), w.map(|w| &w.0[..steps]));
    let mut sums = [[[0.0; LANES]; KEYS]; M];
    for step in 0..steps {
        for (sums, x) in sums.iter_mut().zip(&xv) {
            for (sum, w) in sums.iter_mut().zip(&wv) {
                for lane in 0..LANES {
                    sum[lane] = add_product::<FMA>(x[step][lane], w[step][lane], sum[lane]);
                }
            }
        }
    }
    std::array::from_fn(|i| {
        std::array::from_fn(|j| {
            let [a, b, c, d, e, f, g, h] = sums[i][j];
            let mut sum = ((a + e) + (c + g)) + ((b + f) + (d + h));
            for (&x, &w) in x[i].1.iter().zip(w[j].1) {
                sum = add_product::<FMA>(x, w, sum);
            }
            sum
        })
    })
}
