//! Products in f32: 32 columns and twelve rows of x at a time.
//!
//! A lane of a vector has a column of the result, whose products are added from the first to the
//! last. A row is added up in this order whatever the number of rows.

use std::arch::x86_64::*;
use std::cell::RefCell;
use std::ops::Range;

use super::lanes::Line;
use super::transpose::transpose;
use crate::output::Output;
use crate::pool::{panels, threads};
use crate::{Finish, Problem};

/// Columns of a vector.
pub(super) const LANES: usize = 16;

/// Columns that are computed at a time: two vectors of sums for each row of x.
pub(super) const COLUMNS: usize = 2 * LANES;

/// Rows of x that are multiplied at a time: their sums fit in registers.
pub(super) const ROWS: usize = 12;

/// Rows of x for which weights are brought column beside column in registers, and not kept.
const FEW: usize = 6;

/// Bytes of weights that stay in a core's second-level cache while x passes.
const PANEL_SIZE: usize = 384 << 10;

/// The most steps of k that pass at a time, so that a panel has several columns.
const DEPTH: usize = 1024;

/// Rows that lie this many bytes apart, or a multiple, share few places of a first-level cache.
const ALIKE: usize = 2048;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Buffers of a thread, kept from product to product.
#[derive(Default)]
struct Scratch {
    /// Weights by steps of k, block of columns by block of columns.
    panel: Vec<[Line; 2]>,
    /// Rows of x with space between them.
    x: Vec<[u8; 4]>,
    /// Sums of as many rows.
    totals: Vec<f32>,
}

/// Computes a checked problem of at least one element, all of f32.
pub(crate) fn run(problem: &mut Problem<'_>, data: &[u8], finish: &Finish<'_>) {
    let Problem { m, n, k, x, .. } = *problem;
    let (x, _) = x.as_chunks();
    let product = Product { m, n, k, x, data, finish, out: &Output::of(problem) };
    if m <= FEW {
        // SAFETY: this level was chosen because the processor has its features.
        return panels(n, usize::MAX, COLUMNS, &|columns| unsafe { product.few(columns) });
    }
    let height = PANEL_SIZE / (k.min(DEPTH) * size_of::<f32>());
    panels(n, even(n, height, threads()), COLUMNS, &|columns| {
        // SAFETY: this level was chosen because the processor has its features.
        SCRATCH.with_borrow_mut(|scratch| unsafe { product.many(columns, scratch) });
    });
}

/// The most columns of a panel, no more than `fit`, for which all `threads` get panels of one size,
/// or nearly so.
fn even(n: usize, fit: usize, threads: usize) -> usize {
    let (blocks, fit) = (n.div_ceil(COLUMNS), (fit / COLUMNS).max(1));
    // Two for each thread at least, so that one that is held up does not hold up all.
    let first = blocks.div_ceil(fit).div_ceil(threads).max(2);
    let left_over = |rounds: &usize| blocks.next_multiple_of(rounds * threads) - blocks;
    let rounds = (first..first + 4).min_by_key(left_over).unwrap_or(first);
    blocks.div_ceil(rounds * threads) * COLUMNS
}

/// A product whose sizes were checked.
struct Product<'a> {
    m: usize,
    n: usize,
    k: usize,
    /// `[m, k]`.
    x: &'a [[u8; 4]],
    /// `[n, k]`.
    data: &'a [u8],
    finish: &'a Finish<'a>,
    out: &'a Output<'a>,
}

impl Product<'_> {
    /// Columns `columns` for at most [`FEW`] rows of x.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn few(&self, columns: Range<usize>) {
        match self.m {
            1 => self.streamed::<1>(columns),
            2 => self.streamed::<2>(columns),
            3 => self.streamed::<3>(columns),
            4 => self.streamed::<4>(columns),
            5 => self.streamed::<5>(columns),
            _ => self.streamed::<FEW>(columns),
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn streamed<const M: usize>(&self, columns: Range<usize>) {
        let x: [_; M] = std::array::from_fn(|i| &self.x[i * self.k..][..self.k]);
        for first in columns.clone().step_by(LANES) {
            let block = first..columns.end.min(first + LANES);
            let mut sums = [_mm512_setzero_ps(); M];
            let mut step = 0;
            while step + LANES <= self.k {
                let weights = transpose(self.weights(&block, step));
                for at in 0..LANES {
                    add::<M>(&mut sums, x, step + at, weights[at]);
                }
                step += LANES;
            }
            if step < self.k {
                let weights = transpose(self.weights(&block, step));
                for at in step..self.k {
                    add::<M>(&mut sums, x, at, weights[at - step]);
                }
            }
            for (i, sums) in sums.into_iter().enumerate() {
                // SAFETY: both types are 64 bytes of plain bits.
                let mut sums = unsafe { std::mem::transmute::<__m512, [f32; LANES]>(sums) };
                let sums = &mut sums[..block.len()];
                self.finish.apply::<true>((i, self.n), block.clone(), sums);
                // SAFETY: a unit of work has columns of its own, and is claimed by one thread.
                unsafe { self.out.store(i, block.start, sums) };
            }
        }
    }

    /// Columns `columns` for any number of rows of x.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn many(&self, columns: Range<usize>, Scratch { panel, x, totals }: &mut Scratch) {
        let width = columns.len().next_multiple_of(COLUMNS);
        let depth = self.k.div_ceil(self.k.div_ceil(DEPTH));
        // Only growing, so that memory is not cleared for each panel.
        panel.resize(panel.len().max(width / COLUMNS * depth), [Line::ZERO; 2]);
        for first_step in (0..self.k).step_by(depth) {
            let steps = first_step..self.k.min(first_step + depth);
            self.fill(&columns, &steps, panel);
            let mut first = 0;
            while first < self.m {
                let count = rows_at_a_time(self.m - first);
                let mut rows = &self.x[first * self.k + steps.start..];
                let mut apart = self.k;
                if (self.k * 4).is_multiple_of(ALIKE) {
                    apart = depth + LANES;
                    x.resize(ROWS * apart, [0; 4]);
                    for (to, from) in x.chunks_exact_mut(apart).zip(rows.chunks(self.k)) {
                        to[..steps.len()].copy_from_slice(&from[..steps.len()]);
                    }
                    rows = x;
                }
                totals.clear();
                totals.resize(count * width, 0.0);
                if steps.start > 0 {
                    for (i, totals) in totals.chunks_exact_mut(width).enumerate() {
                        // SAFETY: a unit of work has columns of its own, and is claimed by one
                        // thread.
                        unsafe {
                            self.out.load(first + i, columns.start, &mut totals[..columns.len()])
                        };
                    }
                }
                let w = &panel[..width / COLUMNS * steps.len()];
                tiles(count, (rows, apart, steps.len()), w, (totals, width));
                for (i, totals) in totals.chunks_exact_mut(width).enumerate() {
                    let totals = &mut totals[..columns.len()];
                    if steps.end == self.k {
                        self.finish.apply::<true>((first + i, self.n), columns.clone(), totals);
                    }
                    // SAFETY: a unit of work has columns of its own, and is claimed by one thread.
                    unsafe { self.out.store(first + i, columns.start, totals) };
                }
                first += count;
            }
        }
    }

    /// Brings rows `columns` of the weights column beside column.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn fill(&self, columns: &Range<usize>, steps: &Range<usize>, panel: &mut [[Line; 2]]) {
        let blocks = columns.clone().step_by(COLUMNS);
        for (first, to) in blocks.zip(panel.chunks_exact_mut(steps.len())) {
            for (step, to) in steps.clone().step_by(LANES).zip(to.chunks_mut(LANES)) {
                for half in 0..2 {
                    let first = (first + half * LANES).min(columns.end - 1);
                    let weights = transpose(self.weights(&(first..columns.end), step));
                    for (to, weights) in to.iter_mut().zip(weights) {
                        to[half].set(weights);
                    }
                }
            }
        }
    }

    /// Up to 16 values from column `step` on of the first 16 rows of `block` of the weights;
    /// missing rows repeat the last one. What follows these rows is asked of memory meanwhile, in
    /// its order there.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn weights(&self, block: &Range<usize>, step: usize) -> [__m512i; LANES] {
        let count = LANES.min(self.k - step);
        let mask = ((1u32 << count) - 1) as u16;
        let next =
            self.data.as_ptr().wrapping_add(((block.start + LANES) * self.k + step * LANES) * 4);
        let mut lines = [_mm512_setzero_si512(); LANES];
        for (lane, line) in lines.iter_mut().enumerate() {
            let row = (block.start + lane).min(block.end - 1);
            let part = &self.data[(row * self.k + step) * 4..][..count * 4];
            _mm_prefetch::<_MM_HINT_T1>(next.wrapping_add(64 * lane).cast());
            // SAFETY: the mask lets only the part be read.
            *line = unsafe { _mm512_maskz_loadu_epi32(mask, part.as_ptr().cast()) };
        }
        lines
    }
}

/// Adds the products of value `at` of rows `x` with `w`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn add<const M: usize>(sums: &mut [__m512; M], x: [&[[u8; 4]]; M], at: usize, w: __m512i) {
    for i in 0..M {
        let value = _mm512_set1_ps(f32::from_ne_bytes(x[i][at]));
        sums[i] = _mm512_fmadd_ps(_mm512_castsi512_ps(w), value, sums[i]);
    }
}

/// How many of `left` rows of x are multiplied at a time.
pub(super) fn rows_at_a_time(left: usize) -> usize {
    if left >= ROWS { ROWS } else { left.min(FEW) }
}

/// Adds to `totals`, rows of `width`, what `count` rows of x of `steps` values, which lie `apart`,
/// and `w`, block of columns by block of columns, make.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn tiles(
    count: usize,
    (x, apart, steps): (&[[u8; 4]], usize, usize),
    w: &[[Line; 2]],
    (totals, width): (&mut [f32], usize),
) {
    for (block, w) in w.chunks_exact(steps).enumerate() {
        let totals = &mut totals[block * COLUMNS..];
        match count {
            1 => tile::<1>((x, apart), w, (totals, width)),
            2 => tile::<2>((x, apart), w, (totals, width)),
            3 => tile::<3>((x, apart), w, (totals, width)),
            4 => tile::<4>((x, apart), w, (totals, width)),
            5 => tile::<5>((x, apart), w, (totals, width)),
            FEW => tile::<FEW>((x, apart), w, (totals, width)),
            _ => tile::<ROWS>((x, apart), w, (totals, width)),
        }
    }
}

/// Adds to `totals`, rows of `width`, what `M` rows of x, which lie `apart`, and a block of columns
/// make.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn tile<const M: usize>(
    (x, apart): (&[[u8; 4]], usize),
    w: &[[Line; 2]],
    (totals, width): (&mut [f32], usize),
) {
    assert!(x.len() >= (M - 1) * apart + w.len(), "rows for all steps");
    assert!(totals.len() >= (M - 1) * width + COLUMNS, "a sum for each pair");
    let mut rows = [x.as_ptr(); M];
    let mut sums = [[_mm512_setzero_ps(); 2]; M];
    for i in 0..M {
        rows[i] = x[i * apart..].as_ptr();
        for half in 0..2 {
            // SAFETY: by the assertion there are as many sums.
            sums[i][half] =
                unsafe { _mm512_loadu_ps(totals.as_ptr().add(i * width + half * LANES)) };
        }
    }
    for (step, w) in w.iter().enumerate() {
        let w = [w[0].floats(), w[1].floats()];
        for i in 0..M {
            // SAFETY: by the assertion each row has a value for each step.
            let value = _mm512_set1_ps(f32::from_ne_bytes(unsafe { *rows[i].add(step) }));
            for half in 0..2 {
                sums[i][half] = _mm512_fmadd_ps(w[half], value, sums[i][half]);
            }
        }
    }
    for i in 0..M {
        for half in 0..2 {
            // SAFETY: by the assertion there are as many sums.
            unsafe {
                _mm512_storeu_ps(totals.as_mut_ptr().add(i * width + half * LANES), sums[i][half])
            };
        }
    }
}
