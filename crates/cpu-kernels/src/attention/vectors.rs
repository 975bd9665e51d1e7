//! The two products of attention by the vectors of products of floats.

use std::ops::Range;

use super::task::{Attention, Mix, Tile};
use crate::Dtype;
use crate::floats::Lanes;
use crate::functions::add_product;
use crate::kind::{FROM_BF16, FROM_F16, FROM_F32};
use crate::values::widen;

/// Keys that are widened and multiplied at a time.
const KEYS: usize = 4;
/// Rows that are multiplied at a time.
const ROWS: usize = 3;
/// Vectors of columns that are added to at a time.
const COLUMNS: usize = 4;
/// Keys whose values are widened at a time: all of them stay in the first cache.
const VALUES: usize = 16;

/// `[tile.count, keys]` products of q and k.
#[inline(always)]
pub(super) fn scores<V: Lanes>(
    task: &Attention<'_>,
    tile: &Tile,
    keys: Range<usize>,
    out: &mut [f32],
) {
    // Vectors may be taken two at a time.
    let steps = task.d.div_ceil(16) * 2;
    let (dtype, width) = (task.dtype, keys.len());
    let size = task.d * dtype.size();
    let mut q = vec![[0.0; 8]; tile.count * steps];
    for i in 0..tile.count {
        floats::<V>(dtype, &tile.query(task, i)[..size], &mut q[i * steps..][..steps]);
    }
    let mut panel = vec![[0.0; 8]; KEYS * steps];
    for first in (0..width).step_by(KEYS) {
        let count = KEYS.min(width - first);
        for i in 0..count {
            let key = task.k.from(dtype, tile.row, tile.kv_head, keys.start + first + i);
            floats::<V>(dtype, &key[..size], &mut panel[i * steps..][..steps]);
        }
        let mut k: [&[[f32; 8]]; KEYS] = [&[]; KEYS];
        for j in 0..KEYS {
            // Missing keys repeat the last one.
            k[j] = &panel[j.min(count - 1) * steps..][..steps];
        }
        for row in (0..tile.count).step_by(ROWS) {
            let (q, to) = (&q[row * steps..], &mut out[row * width + first..]);
            match tile.count - row {
                1 => dots::<V, 1>(q, k, to, (width, count)),
                2 => dots::<V, 2>(q, k, to, (width, count)),
                _ => dots::<V, ROWS>(q, k, to, (width, count)),
            }
        }
    }
}

/// Products of `M` rows with `count` keys, in rows of `width`.
#[inline(always)]
fn dots<V: Lanes, const M: usize>(
    q: &[[f32; 8]],
    k: [&[[f32; 8]]; KEYS],
    to: &mut [f32],
    (width, count): (usize, usize),
) {
    let steps = k[0].len();
    let mut x: [&[[f32; 8]]; M] = [&[]; M];
    for i in 0..M {
        x[i] = &q[i * steps..][..steps];
    }
    let dots = V::dots::<M>(x, k);
    for i in 0..M {
        let sums = V::sums(dots[i]);
        to[i * width..][..count].copy_from_slice(&sums[..count]);
    }
}

/// Adds the values of `mix.keys`, by their weights, to `acc`, `[rows, columns]`.
#[inline(always)]
pub(super) fn add_values<V: Lanes>(
    task: &Attention<'_>,
    tile: &Tile,
    mix: &Mix<'_>,
    acc: &mut [f32],
) {
    let (width, size) = (mix.columns.len(), task.dtype.size());
    let (vectors, rows) = (width.div_ceil(8), mix.weights.len());
    let mut values = vec![[0.0; 8]; VALUES * vectors];
    for first in (0..mix.keys.len()).step_by(VALUES) {
        let count = VALUES.min(mix.keys.len() - first);
        for i in 0..count {
            let key = mix.keys.start + first + i;
            let value = task.v.from(task.dtype, tile.row, tile.kv_head, key);
            let value = &value[mix.columns.start * size..][..width * size];
            floats::<V>(task.dtype, value, &mut values[i * vectors..][..vectors]);
        }
        let values = &values[..count * vectors];
        for row in (0..rows).step_by(ROWS) {
            let (weights, acc) = (&mix.weights[row..], &mut acc[row * width..]);
            match rows - row {
                1 => add_rows::<V, 1>((weights, first), values, width, acc),
                2 => add_rows::<V, 2>((weights, first), values, width, acc),
                _ => add_rows::<V, ROWS>((weights, first), values, width, acc),
            }
        }
    }
}

/// Adds `values`, by the weights of `M` rows from `first` on, to `acc`, in rows of `width`.
#[inline(always)]
fn add_rows<V: Lanes, const M: usize>(
    (weights, first): (&[&[f32]], usize),
    values: &[[f32; 8]],
    width: usize,
    acc: &mut [f32],
) {
    let vectors = width.div_ceil(8);
    let count = values.len() / vectors.max(1);
    let mut of_row: [&[f32]; M] = [&[]; M];
    for i in 0..M {
        of_row[i] = &weights[i][first..][..count];
    }
    let mut at = 0;
    while at + COLUMNS * 8 <= width {
        add_block::<V, M, COLUMNS>(of_row, &values[at / 8..], (vectors, width), &mut acc[at..]);
        at += COLUMNS * 8;
    }
    while at + 8 <= width {
        add_block::<V, M, 1>(of_row, &values[at / 8..], (vectors, width), &mut acc[at..]);
        at += 8;
    }
    for column in at..width {
        for i in 0..M {
            let sum = &mut acc[i * width + column];
            for key in 0..count {
                let value = values[key * vectors + column / 8][column % 8];
                *sum = add_product::<true>(of_row[i][key], value, *sum);
            }
        }
    }
}

/// `C` vectors of columns; values lie in rows of `vectors`.
#[inline(always)]
fn add_block<V: Lanes, const M: usize, const C: usize>(
    weights: [&[f32]; M],
    values: &[[f32; 8]],
    (vectors, width): (usize, usize),
    acc: &mut [f32],
) {
    let mut sums = [[V::zero(); C]; M];
    for i in 0..M {
        let (from, _) = acc[i * width..][..8 * C].as_chunks::<8>();
        for j in 0..C {
            sums[i][j] = V::load(&from[j]);
        }
    }
    for key in 0..weights[0].len() {
        let values = &values[key * vectors..][..C];
        let mut weight = [V::zero(); M];
        for i in 0..M {
            weight[i] = V::load(&[weights[i][key]; 8]);
        }
        // One vector at a time: with more of them in hand, sums would not fit in registers.
        for j in 0..C {
            let value = V::load(&values[j]);
            for i in 0..M {
                sums[i][j] = weight[i].mul_add(value, sums[i][j]);
            }
        }
    }
    for i in 0..M {
        let (to, _) = acc[i * width..][..8 * C].as_chunks_mut::<8>();
        for j in 0..C {
            sums[i][j].store(&mut to[j]);
        }
    }
}

/// The elements of `bytes`, and zeros behind them.
#[inline(always)]
fn floats<V: Lanes>(dtype: Dtype, bytes: &[u8], to: &mut [[f32; 8]]) {
    match dtype {
        Dtype::F32 => floats_of::<V, FROM_F32>(dtype, bytes, to),
        Dtype::F16 => floats_of::<V, FROM_F16>(dtype, bytes, to),
        Dtype::Bf16 => floats_of::<V, FROM_BF16>(dtype, bytes, to),
    }
}

#[inline(always)]
fn floats_of<V: Lanes, const KIND: u8>(dtype: Dtype, bytes: &[u8], to: &mut [[f32; 8]]) {
    let eights = bytes.chunks_exact(8 * dtype.size());
    let (whole, rest) = to.split_at_mut(eights.len());
    let rest = rest.as_flattened_mut();
    rest.fill(0.0);
    widen(dtype, eights.remainder(), rest);
    for (to, bytes) in whole.iter_mut().zip(eights) {
        V::dense::<KIND>(bytes).store(to);
    }
}
