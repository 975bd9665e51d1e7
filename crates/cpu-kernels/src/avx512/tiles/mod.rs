//! Products of prompts by tiles (AMX): 16 rows of weights and 16 rows of x at a time.
//!
//! Weights are packed ones unpacked, scaled and rounded to bf16, or bf16 as they are. A thread
//! unpacks a panel of them once for all rows of x. Products of bf16 are exact; they are added up in
//! f32.

mod instructions;
mod turn;
mod unpack;

use std::cell::RefCell;
use std::ops::Range;

use self::instructions::{ROWS, STEP, Tile, multiply, with_tiles};
use self::turn::{store, turn};
use self::unpack::{Source, copy};
use super::lanes::Line;
use super::scales::Groups;
use crate::kind::{for_kind, packed as kind_of};
use crate::output::Output;
use crate::pool::{Parts, panels, run as run_units};
use crate::{Problem, Weights};

/// Rows of weights, and of x, that are multiplied at a time.
const PAIR: usize = 2 * ROWS;

/// Bytes of unpacked weights that stay in a core's second-level cache while x passes.
const PANEL_SIZE: usize = 512 << 10;

thread_local! {
    static X: RefCell<Vec<Tile>> = RefCell::default();
    static PANEL: RefCell<Vec<Tile>> = RefCell::default();
}

/// Computes a checked problem of at least one element that is a prompt's in bf16.
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
                let source = Source { k, data, group_size, groups };
                for_kind!(kind, product.unpacked(&source));
            }
        }
    });
}

/// Brings `x`, `[m, k]`, into tiles `[blocks, steps]`: pairs of 16 rows side by side.
fn turn_x(x: &[u8], (m, k): (usize, usize), tiles: &mut [Tile]) {
    let steps = k.div_ceil(STEP);
    let shared = Parts::of(tiles);
    run_units(m.div_ceil(ROWS), &|block| {
        let rows = &x[block * ROWS * k * 2..m.min((block + 1) * ROWS) * k * 2];
        // SAFETY: each unit has tiles of its own.
        let tiles = unsafe { shared.part(block * steps..(block + 1) * steps) };
        // SAFETY: the level has AVX-512.
        unsafe { turn(rows, k, tiles) }
    });
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
    fn unpacked<const KIND: u8>(&self, source: &Source<'_>) {
        // SAFETY: the level has AVX-512.
        self.run(&|columns, panel| unsafe { source.fill::<KIND>(columns, self.steps, panel) });
    }

    /// The whole product; `fill` writes columns into a panel `[blocks of 16 rows, steps]`.
    fn run(&self, fill: &(dyn Fn(Range<usize>, &mut [Tile]) + Sync)) {
        let height = PANEL_SIZE / (self.steps * size_of::<Line>());
        panels(self.n, height, PAIR, &|columns| {
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
