//! Products of prompts by vectors: 32 rows of weights and six rows of x at a time.
//!
//! A lane of a vector has a column of the result. A thread unpacks a panel of weights once, column
//! beside column, and all rows of x pass it: a pair of x is given to all lanes. Codes are exact in
//! bf16, so products are; the scale of a group is applied to its sum.

mod panel;
mod sizes;
mod x;

use std::arch::x86_64::*;
use std::cell::RefCell;
use std::ops::Range;

use self::panel::{Columns, Panel};
use self::sizes::DENSE_PART;
pub(super) use self::sizes::{COLUMNS, UNROLLED};
use self::x::X;
use super::lanes::Line;
use super::scales::Groups;
use crate::kind::{for_kind, packed as kind_of};
use crate::output::Output;
use crate::pool::panels;
use crate::prefetch::Ahead;
use crate::{Packing, Problem, Weights};

/// Rows of x that are multiplied at a time: their sums over a group and over all groups fit in
/// registers.
pub(super) const ROWS: usize = 6;

/// Bytes of unpacked weights that stay in a core's second-level cache while x passes.
const PANEL_SIZE: usize = 384 << 10;

thread_local! {
    static X: RefCell<X> = RefCell::default();
    static PANEL: RefCell<Panel> = RefCell::default();
}

/// Computes a checked problem of at least one element that is a prompt's in bf16.
pub(crate) fn run(problem: &mut Problem<'_>) {
    let Problem { m, n, k, x, weights, .. } = *problem;
    let out = &Output::of(problem);
    X.with_borrow_mut(|rows| {
        let source = match weights {
            Weights::Dense { data, .. } => {
                rows.set(x, (m, k), 2, None);
                panel::Source { k, data, groups: None, group_size: 2 * rows.steps() }
            }
            Weights::Packed { packing, group_size, data, scales, biases } => {
                let kind = kind_of(packing);
                let summed = matches!(packing, Packing::Affine { .. }).then_some(group_size);
                rows.set(x, (m, k), panel::codes_of_word(kind), summed);
                let groups = Some(Groups::new(packing, kind, (k, group_size), scales, biases));
                panel::Source { k, data, groups, group_size }
            }
        };
        let product = Product { n, m, x: rows, out, source };
        match weights {
            // SAFETY: the level has AVX-512.
            Weights::Dense { .. } => product.run(&|columns, panel| unsafe {
                product.source.copy(columns, panel);
            }),
            Weights::Packed { packing, .. } => for_kind!(kind_of(packing), product.unpacked()),
        }
    });
}

/// A product whose x is prepared.
struct Product<'a> {
    n: usize,
    m: usize,
    x: &'a X,
    out: &'a Output<'a>,
    source: panel::Source<'a>,
}

impl Product<'_> {
    fn unpacked<const KIND: u8>(&self) {
        // SAFETY: the level has AVX-512.
        self.run(&|columns, panel| unsafe { self.source.unpack::<KIND>(columns, panel) });
    }

    /// The whole product; `fill` writes columns into a panel.
    fn run(&self, fill: &(dyn Fn(Range<usize>, &mut Panel) + Sync)) {
        let height = PANEL_SIZE / (self.x.steps() * size_of::<u32>());
        panels(self.n, height, COLUMNS, &|columns| {
            PANEL.with_borrow_mut(|panel| {
                fill(columns.clone(), panel);
                // SAFETY: the level has AVX-512.
                unsafe { self.columns(columns, panel) };
            });
        });
    }

    /// All rows of x times a panel of `columns`.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
    fn columns(&self, columns: Range<usize>, panel: &Panel) {
        let row_size = self.source.data.len() / self.n;
        let next = columns.end..self.n.min(columns.end + columns.len());
        let next = &self.source.data[next.start * row_size..next.end * row_size];
        let blocks = self.m.div_ceil(ROWS) * columns.len().div_ceil(COLUMNS);
        let ahead = &mut Ahead::new(next, blocks * panel.parts());
        for first in (0..self.m).step_by(ROWS) {
            for (block, column) in columns.clone().step_by(COLUMNS).enumerate() {
                let count = COLUMNS.min(columns.end - column);
                let (w, at) = (panel.columns(block), (first, column, count));
                match self.m - first {
                    1 => self.block::<1>(w, at, ahead),
                    2 => self.block::<2>(w, at, ahead),
                    3 => self.block::<3>(w, at, ahead),
                    4 => self.block::<4>(w, at, ahead),
                    5 => self.block::<5>(w, at, ahead),
                    _ => self.block::<ROWS>(w, at, ahead),
                }
            }
        }
    }

    /// `M` rows of x from row `first` on times columns `column..column + count`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
    fn block<const M: usize>(
        &self,
        w: Columns<'_>,
        (first, column, count): (usize, usize, usize),
        ahead: &mut Ahead<'_>,
    ) {
        let x: [&[[u32; UNROLLED]]; M] = std::array::from_fn(|i| self.x.row(first + i));
        let sums: [&[f32]; M] = std::array::from_fn(|i| self.x.sums(first + i));
        let mut totals = [[_mm512_setzero_ps(); 2]; M];
        if w.scales.is_empty() {
            for (at, values) in w.values.chunks(DENSE_PART).enumerate() {
                ahead.part();
                let mut x = x;
                for row in &mut x {
                    *row = &row[at * DENSE_PART..];
                }
                totals = add_products(totals, x, values);
            }
        }
        let each = w.values.len() / w.scales.len().max(1);
        for (group, scales) in w.scales.iter().enumerate() {
            ahead.part();
            let part = group * each..(group + 1) * each;
            // No closure: it would not become part of a function with vectors.
            let mut x = x;
            for row in &mut x {
                *row = &row[part.clone()];
            }
            let dots = add_products([[_mm512_setzero_ps(); 2]; M], x, &w.values[part]);
            for j in 0..2 {
                let scale = scales[j].floats();
                for i in 0..M {
                    totals[i][j] = _mm512_fmadd_ps(dots[i][j], scale, totals[i][j]);
                }
            }
        }
        for (group, biases) in w.biases.iter().enumerate() {
            for j in 0..2 {
                let bias = biases[j].floats();
                for i in 0..M {
                    let sum = _mm512_set1_ps(sums[i][group]);
                    totals[i][j] = _mm512_fmadd_ps(bias, sum, totals[i][j]);
                }
            }
        }
        for (i, [low, high]) in totals.into_iter().enumerate() {
            let values = _mm512_cvtne2ps_pbh(high, low);
            // SAFETY: both types are 64 bytes of plain bits.
            let bytes = unsafe { std::mem::transmute::<__m512bh, [u8; 64]>(values) };
            // SAFETY: a unit of work has columns of its own, and is claimed by one thread.
            unsafe { self.out.store_bytes(first + i, column, &bytes[..2 * count]) };
        }
    }
}

/// `totals` and the products of pairs of `x` with `w`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
pub(super) fn add_products<const M: usize>(
    mut totals: [[__m512; 2]; M],
    x: [&[[u32; UNROLLED]]; M],
    w: &[[[Line; 2]; UNROLLED]],
) -> [[__m512; 2]; M] {
    let mut from = [std::ptr::null::<i32>(); M];
    for i in 0..M {
        assert!(x[i].len() >= w.len());
        from[i] = x[i].as_ptr().cast();
    }
    for (at, w) in w.iter().enumerate() {
        for step in 0..UNROLLED {
            let [w0, w1] = [w[step][0].pairs(), w[step][1].pairs()];
            for i in 0..M {
                // SAFETY: by the assertion the row has the word.
                let pair = _mm512_set1_epi32(unsafe { *from[i].add(at * UNROLLED + step) });
                // SAFETY: both types are 64 bytes of plain bits.
                let pair = unsafe { std::mem::transmute::<__m512i, __m512bh>(pair) };
                totals[i][0] = _mm512_dpbf16_ps(totals[i][0], w0, pair);
                totals[i][1] = _mm512_dpbf16_ps(totals[i][1], w1, pair);
            }
        }
    }
    totals
}
