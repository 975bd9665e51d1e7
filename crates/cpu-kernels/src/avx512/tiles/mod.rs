//! Products of prompts by tiles (AMX): 16 rows of weights and 16 rows of x at a time.
//!
//! Weights are packed ones unpacked, scaled and rounded to bf16, or bf16 as they are. A thread unpacks a
//! panel of them once for all rows of x. Products of bf16 are exact; they are added up in f32.

mod instructions;
mod transpose;
mod unpack;

use std::cell::RefCell;
use std::ops::Range;

use self::instructions::{ROWS, STEP, Tile, multiply, with_tiles};
use self::transpose::{store, turn};
use self::unpack::{Source, copy};
use super::lanes::Line;
use super::scales::Groups;
use crate::kind::{FP4, FP8, packed as kind_of};
use crate::output::Output;
use crate::pool::{run as run_units, threads};
use crate::{Dtype, Packing, Problem, Weights};

/// Rows of weights, and of x, that are multiplied at a time.
const PAIR: usize = 2 * ROWS;

/// Bytes of unpacked weights that stay in a core's second-level cache while x passes.
const PANEL_SIZE: usize = 512 << 10;

/// From so many positions of a sequence on tiles are faster than vectors.
const POSITIONS: usize = 16;

thread_local! {
    static X: RefCell<Vec<Tile>> = RefCell::default();
    static PANEL: RefCell<Vec<Tile>> = RefCell::default();
}

/// Whether tiles take the problem. That depends on the kinds and the length of a sequence alone, so that
/// a row does not depend on the other rows.
pub(crate) fn take(problem: &Problem<'_>) -> bool {
    let weights = match problem.weights {
        Weights::Dense { dtype, .. } => dtype == Dtype::Bf16,
        Weights::Packed { .. } => true,
    };
    weights && problem.dtype == Dtype::Bf16 && problem.positions >= POSITIONS
}

/// Computes a checked problem of at least one element that [`take`] takes.
pub(crate) fn run(problem: &mut Problem<'_>) {
    let Problem { m, n, k, x, weights, .. } = *problem;
    let out = &Output::of(problem);
    X.with_borrow_mut(|tiles| {
        let (blocks, steps) = (m.div_ceil(ROWS), k.div_ceil(STEP));
        // Only growing, so that memory is not cleared for each product.
        tiles.resize(tiles.len().max(blocks * steps), Tile::ZERO);
        turn_x(x, (m, k), &mut tiles[..blocks * steps]);
        let product = Product { n, m, steps, x: &tiles[..blocks * steps], out };
        match weights {
            Weights::Dense { data, .. } => {
                // SAFETY: the level has AVX-512.
                product.run(&|columns, panel| unsafe { copy(data, k, columns, panel) });
            }
            Weights::Packed { packing, group_size, data, scales, biases } => {
                let kind = kind_of(packing);
                let groups = Groups::new(packing, kind, (k, group_size), scales, biases);
                product.packed(packing, &Source { k, data, group_size, groups });
            }
        }
    });
}

/// Brings `x`, `[m, k]`, into tiles `[blocks, steps]`: pairs of 16 rows side by side.
fn turn_x(x: &[u8], (m, k): (usize, usize), tiles: &mut [Tile]) {
    let steps = k.div_ceil(STEP);
    let shared = Tiles { first: tiles.as_mut_ptr(), len: tiles.len() };
    run_units(m.div_ceil(ROWS), &|block| {
        let rows = &x[block * ROWS * k * 2..m.min((block + 1) * ROWS) * k * 2];
        // SAFETY: each unit has tiles of its own, and `tiles` is borrowed until all units are done.
        let tiles = unsafe { shared.part(block * steps..(block + 1) * steps) };
        // SAFETY: the level has AVX-512.
        unsafe { turn(rows, k, tiles) }
    });
}

/// Tiles that threads write, each its own.
struct Tiles {
    first: *mut Tile,
    len: usize,
}

// SAFETY: only `part` leads to the tiles, whose callers promise parts of their own.
unsafe impl Sync for Tiles {}

impl Tiles {
    /// # Safety
    /// No other thread uses these tiles meanwhile, and what they were borrowed from still is.
    #[allow(clippy::mut_from_ref, reason = "each caller has tiles of its own")]
    unsafe fn part(&self, range: Range<usize>) -> &mut [Tile] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: the range lies inside the slice; the caller promises the rest.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(range.start), range.len()) }
    }
}

/// A product whose x is in tiles.
struct Product<'a> {
    n: usize,
    m: usize,
    /// Tiles along k.
    steps: usize,
    /// `[blocks, steps]`.
    x: &'a [Tile],
    out: &'a Output<'a>,
}

impl Product<'_> {
    fn packed(&self, packing: Packing, source: &Source<'_>) {
        match packing {
            Packing::Affine { bits: 2, .. } => self.unpacked::<2>(source),
            Packing::Affine { bits: 3, .. } => self.unpacked::<3>(source),
            Packing::Affine { bits: 4, .. } => self.unpacked::<4>(source),
            Packing::Affine { bits: 5, .. } => self.unpacked::<5>(source),
            Packing::Affine { bits: 6, .. } => self.unpacked::<6>(source),
            Packing::Affine { .. } => self.unpacked::<8>(source),
            Packing::Mxfp4 | Packing::Nvfp4 => self.unpacked::<FP4>(source),
            Packing::Mxfp8 => self.unpacked::<FP8>(source),
        }
    }

    fn unpacked<const KIND: u8>(&self, source: &Source<'_>) {
        // SAFETY: the level has AVX-512.
        self.run(&|columns, panel| unsafe { source.fill::<KIND>(columns, self.steps, panel) });
    }

    /// The whole product; `fill` writes columns into a panel `[blocks of 16 rows, steps]`.
    fn run(&self, fill: &(dyn Fn(Range<usize>, &mut [Tile]) + Sync)) {
        let fits = (PANEL_SIZE / (self.steps * size_of::<Line>())).max(PAIR) / PAIR * PAIR;
        // Several for each thread, so that one that is held up does not hold up all.
        let each = self.n.div_ceil(threads() * 4).next_multiple_of(PAIR).min(fits);
        run_units(self.n.div_ceil(each), &|unit| {
            let columns = unit * each..self.n.min((unit + 1) * each);
            PANEL.with_borrow_mut(|panel| {
                let blocks = columns.len().div_ceil(PAIR) * 2;
                panel.resize(panel.len().max(blocks * self.steps), Tile::ZERO);
                let panel = &mut panel[..blocks * self.steps];
                fill(columns.clone(), panel);
                // SAFETY: the level has AVX-512 and tiles.
                unsafe { with_tiles(|| self.columns(columns, panel)) };
            });
        });
    }

    /// All rows of x times a panel of `columns`.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
    fn columns(&self, columns: Range<usize>, panel: &[Tile]) {
        let mut sums = [Tile::ZERO; 4];
        for x in (0..self.m.div_ceil(ROWS)).step_by(2) {
            let rows = x * ROWS..self.m.min(x * ROWS + PAIR);
            let x = &self.x[x * self.steps..];
            for w in (0..panel.len() / self.steps).step_by(2) {
                let first = columns.start + w * ROWS;
                let w = &panel[w * self.steps..][..2 * self.steps];
                // SAFETY: this thread's tiles are configured.
                unsafe { multiply(w, &x[..rows.len().div_ceil(ROWS) * self.steps], &mut sums) };
                let count = PAIR.min(columns.end - first);
                store(self.out, (rows.clone(), first, count), &sums);
            }
        }
    }
}
