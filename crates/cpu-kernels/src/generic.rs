//! Kernels in plain Rust, which the compiler turns into the vectors that every processor has.
//!
//! A few rows of weights are widened to f32 in a thread's scratch memory and multiplied with all
//! rows of x, so that x may have any number of rows at the cost of one widening.

use std::cell::RefCell;

use crate::output::Output;
use crate::values::{e2m1, e4m3, load, scale, widen};
use crate::{Packing, Problem, Weights, pool};

/// Rows of weights that one pass over x multiplies.
const ROWS: usize = 4;
/// Rows of x that are multiplied at a time.
const X_ROWS: usize = 3;
const LANES: usize = 8;

pub(crate) static E2M1: [f32; 16] = {
    let mut table = [0.0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = e2m1(i as u8);
        i += 1;
    }
    table
};

pub(crate) static E4M3: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = e4m3(i as u8);
        i += 1;
    }
    table
};

thread_local! {
    static X: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    static PANEL: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

struct Blocks<'a> {
    k: usize,
    n: usize,
    x: &'a [f32],
    weights: Weights<'a>,
    out: Output<'a>,
}

/// Computes a checked problem of at least one element.
pub(crate) fn run(problem: &mut Problem<'_>) {
    let Problem { m, n, k, dtype, x: bytes, weights, .. } = *problem;
    X.with_borrow_mut(|x| {
        x.resize(m * k, 0.0);
        widen(dtype, bytes, x);
        let blocks = Blocks { k, n, x, weights, out: Output::of(problem) };
        let units = n.div_ceil(ROWS);
        // Several blocks at a time, so that claiming one costs little.
        let each = units.div_ceil(pool::threads() * 8).clamp(1, 64);
        pool::run(units.div_ceil(each), &|unit| {
            PANEL.with_borrow_mut(|panel| {
                panel.resize(ROWS * k, 0.0);
                for at in unit * each..((unit + 1) * each).min(units) {
                    block::<{ cfg!(target_arch = "aarch64") }>(&blocks, at * ROWS, panel);
                }
            });
        });
    });
}

/// Columns `first`.. of all rows of the result. `FMA` is whether the processor multiplies and
/// adds in one instruction.
#[inline(always)]
fn block<const FMA: bool>(blocks: &Blocks<'_>, first: usize, panel: &mut [f32]) {
    let Blocks { k, n, x, .. } = *blocks;
    let rows = ROWS.min(n - first);
    for (row, to) in panel.chunks_exact_mut(k).take(rows).enumerate() {
        widen_row(&blocks.weights, first + row, to);
    }
    // Missing rows repeat the last one.
    let w: [&[f32]; ROWS] = std::array::from_fn(|j| &panel[j.min(rows - 1) * k..][..k]);
    let store = |row: usize, sums: [f32; ROWS]| {
        // SAFETY: each block has columns of its own, and each is claimed by one thread.
        unsafe { blocks.out.store(row, first, &sums[..rows]) }
    };
    let tiles = x.chunks_exact(X_ROWS * k);
    let (done, rest) = (tiles.len() * X_ROWS, tiles.remainder());
    for (tile, x) in tiles.enumerate() {
        let x: [&[f32]; X_ROWS] = std::array::from_fn(|i| &x[i * k..][..k]);
        for (i, sums) in dots::<FMA, X_ROWS>(x, w).into_iter().enumerate() {
            store(tile * X_ROWS + i, sums);
        }
    }
    for (i, x) in rest.chunks_exact(k).enumerate() {
        store(done + i, dots::<FMA, 1>([x], w)[0]);
    }
}

/// The dot products of each row of x with each row of weights.
#[inline(always)]
pub(crate) fn dots<const FMA: bool, const M: usize>(
    x: [&[f32]; M],
    w: [&[f32]; ROWS],
) -> [[f32; ROWS]; M] {
    let x = x.map(|row| row.as_chunks::<LANES>());
    let w = w.map(|row| row.as_chunks::<LANES>());
    let steps = w[0].0.len();
    let (xv, wv) = (x.map(|x| &x.0[..steps]), w.map(|w| &w.0[..steps]));
    let mut sums = [[[0.0; LANES]; ROWS]; M];
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

#[inline(always)]
pub(crate) fn add_product<const FMA: bool>(x: f32, w: f32, sum: f32) -> f32 {
    if FMA { x.mul_add(w, sum) } else { sum + x * w }
}

/// Writes row `row` of the weights to `to`.
#[inline(always)]
fn widen_row(weights: &Weights<'_>, row: usize, to: &mut [f32]) {
    let k = to.len();
    match *weights {
        Weights::Dense { dtype, data } => {
            let size = k * dtype.size();
            widen(dtype, &data[row * size..][..size], to);
        }
        Weights::Packed { packing, group_size, data, scales, biases } => {
            let bits = packing.bits();
            let data = &data[row * k / 8 * bits..][..k / 8 * bits];
            let groups = k / group_size;
            let values = to.chunks_exact_mut(group_size);
            for (i, (to, codes)) in values.zip(data.chunks_exact(group_size / 8 * bits)).enumerate()
            {
                let index = row * groups + i;
                let scale = scale(packing, scales, index);
                let bias = match packing {
                    Packing::Affine { scales: dtype, .. } => load(dtype, biases, index),
                    _ => 0.0,
                };
                for (to, codes) in
                    to.as_chunks_mut::<8>().0.iter_mut().zip(codes.chunks_exact(bits))
                {
                    let codes = unpack(bits, codes);
                    match packing {
                        Packing::Affine { .. } => {
                            for i in 0..8 {
                                to[i] = f32::from(codes[i]) * scale + bias;
                            }
                        }
                        Packing::Mxfp4 | Packing::Nvfp4 => {
                            for i in 0..8 {
                                to[i] = E2M1[usize::from(codes[i] & 15)] * scale;
                            }
                        }
                        Packing::Mxfp8 => {
                            for i in 0..8 {
                                to[i] = E4M3[usize::from(codes[i])] * scale;
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Eight codes, which take `bits` bytes.
#[inline(always)]
fn unpack(bits: usize, bytes: &[u8]) -> [u8; 8] {
    let mut word = [0; 8];
    word[..bits].copy_from_slice(bytes);
    let word = u64::from_le_bytes(word);
    let mask = u8::MAX >> (8 - bits);
    std::array::from_fn(|i| (word >> (bits * i)) as u8 & mask)
}
