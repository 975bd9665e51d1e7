//! Products of floats with weights that become floats.

use std::ops::Range;

use super::chunk::Chunk;
use super::codes::chunk_size;
use super::groups::{Groups, OfRow};
use super::lanes::Lanes;
use super::sizes::{CHUNK, STEPS};
use crate::kind::{bits, is_dense};
use crate::output::Output;

/// Rows of x up to which weights stay in registers.
pub(super) const FEW: usize = 4;

/// How many bytes ahead of the weights at hand memory is asked for more.
const AHEAD: usize = 2048;

/// Rows of x that are multiplied with two rows of a panel at a time: their sums over a chunk, two for each
/// product so that one need not wait for the other, fit in registers.
const TILE: usize = 3;

/// The largest chunk, of f32.
const MAX_CHUNK_SIZE: usize = 4 * CHUNK;

/// What a thread keeps from product to product for its memory.
#[derive(Default)]
pub(super) struct Scratch {
    /// Rows of weights.
    panel: Vec<Chunk>,
    groups: OfRow,
}

/// A product whose sizes were checked.
pub(super) struct Product<'a> {
    /// Rows of x.
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) x: &'a [Chunk],
    pub(super) data: &'a [u8],
    /// Of packed weights.
    pub(super) groups: Option<Groups<'a>>,
    pub(super) out: &'a Output<'a>,
}

impl Product<'_> {
    /// Chunks in a row.
    pub(super) fn chunks(&self) -> usize {
        self.k.div_ceil(CHUNK)
    }

    /// Row `i` of x.
    fn row(&self, i: usize) -> &[Chunk] {
        &self.x[i * self.chunks()..][..self.chunks()]
    }

    /// Columns `columns` of all rows.
    #[inline(always)]
    pub(super) fn columns<V: Lanes, const KIND: u8>(
        &self,
        columns: Range<usize>,
        scratch: &mut Scratch,
    ) {
        match self.m {
            1 => self.few::<V, KIND, 1>(columns, scratch),
            2 => self.few::<V, KIND, 2>(columns, scratch),
            3 => self.few::<V, KIND, 3>(columns, scratch),
            FEW => self.few::<V, KIND, FEW>(columns, scratch),
            _ => self.many::<V, KIND>(columns, scratch),
        }
    }

    /// Columns `columns` for the only `M` rows of x, unpacking in registers.
    #[inline(always)]
    fn few<V: Lanes, const KIND: u8, const M: usize>(
        &self,
        columns: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let x: [&[Chunk]; M] = std::array::from_fn(|i| self.row(i));
        self.prepare(&mut scratch.groups);
        for first in columns.clone().step_by(4) {
            let count = 4.min(columns.end - first);
            let mut results = [[V::zero(); 4]; M];
            for j in 0..count {
                let row = self.weights_of::<V, KIND>(first + j, &mut scratch.groups);
                let mut totals = [V::zero(); M];
                for chunk in 0..self.chunks() {
                    let weights = row.chunk::<V, KIND>(chunk);
                    for i in 0..M {
                        let mut dots = [V::zero(); 2];
                        for (step, weights) in weights.iter().enumerate() {
                            let dot = &mut dots[step % 2];
                            *dot = x[i][chunk].step::<V>(step).mul_add(*weights, *dot);
                        }
                        totals[i] = totals[i].add(dots[0].add(dots[1]));
                    }
                }
                for i in 0..M {
                    results[i][j] = totals[i];
                }
            }
            self.store((0, first, count), &results);
        }
    }

    /// Columns `columns` for any number of rows of x, each row of weights unpacked once.
    #[inline(always)]
    fn many<V: Lanes, const KIND: u8>(&self, columns: Range<usize>, scratch: &mut Scratch) {
        let (chunks, Scratch { panel, groups }) = (self.chunks(), scratch);
        self.prepare(groups);
        // Only growing, so that memory is not cleared for each panel.
        panel.resize(panel.len().max(columns.len() * chunks), Chunk::ZERO);
        for (row, to) in columns.clone().zip(panel.chunks_exact_mut(chunks)) {
            let row = self.weights_of::<V, KIND>(row, groups);
            for (chunk, to) in to.iter_mut().enumerate() {
                to.set(row.chunk::<V, KIND>(chunk));
            }
        }
        for first in (0..self.m).step_by(TILE) {
            match self.m - first {
                1 => self.rows_of_panel::<V, 1>(first, columns.clone(), panel),
                2 => self.rows_of_panel::<V, 2>(first, columns.clone(), panel),
                _ => self.rows_of_panel::<V, TILE>(first, columns.clone(), panel),
            }
        }
    }

    /// `M` rows of x from row `first_x` on, times the whole panel.
    #[inline(always)]
    fn rows_of_panel<V: Lanes, const M: usize>(
        &self,
        first_x: usize,
        columns: Range<usize>,
        panel: &[Chunk],
    ) {
        let (chunks, height) = (self.chunks(), columns.len());
        let x: [&[Chunk]; M] = std::array::from_fn(|i| self.row(first_x + i));
        for first in (0..height).step_by(2) {
            let count = 2.min(height - first);
            // A missing row repeats the last one.
            let w = [first, first + count - 1].map(|row| &panel[row * chunks..][..chunks]);
            let mut totals = [[V::zero(); 4]; M];
            for chunk in 0..chunks {
                let mut dots = [[[V::zero(); 2]; 2]; M];
                for step in 0..STEPS {
                    let w0 = w[0][chunk].step::<V>(step);
                    let w1 = w[1][chunk].step::<V>(step);
                    for i in 0..M {
                        let x = x[i][chunk].step::<V>(step);
                        let [dot0, dot1] = &mut dots[i];
                        dot0[step % 2] = x.mul_add(w0, dot0[step % 2]);
                        dot1[step % 2] = x.mul_add(w1, dot1[step % 2]);
                    }
                }
                for i in 0..M {
                    for j in 0..2 {
                        totals[i][j] = totals[i][j].add(dots[i][j][0].add(dots[i][j][1]));
                    }
                }
            }
            self.store((first_x, columns.start + first, count), &totals);
        }
    }

    fn prepare(&self, of_row: &mut OfRow) {
        if let Some(groups) = &self.groups {
            of_row.prepare(groups);
        }
    }

    /// Row `row` of the weights, whose groups are put into `groups`.
    #[inline(always)]
    fn weights_of<'r, V: Lanes, const KIND: u8>(
        &'r self,
        row: usize,
        groups: &'r mut OfRow,
    ) -> Row<'r> {
        if let Some(of_matrix) = &self.groups {
            groups.set::<V>(of_matrix, row);
        }
        let size = self.k * bits(KIND) / 8;
        Row { bytes: &self.data[row * size..][..size], groups }
    }

    /// Sums the lanes, and writes `count` columns from row and column on.
    #[inline(always)]
    fn store<V: Lanes, const M: usize>(
        &self,
        (row, column, count): (usize, usize, usize),
        totals: &[[V; 4]; M],
    ) {
        for (i, totals) in totals.iter().enumerate() {
            let sums = V::sums(*totals);
            // SAFETY: a unit of work has columns of its own, and is claimed by one thread.
            unsafe { self.out.store(row + i, column, &sums[..count]) };
        }
    }
}

/// A row of weights.
struct Row<'a> {
    bytes: &'a [u8],
    /// Of packed weights.
    groups: &'a OfRow,
}

impl Row<'_> {
    /// Chunk `chunk`. What is after the row's end is finite.
    #[inline(always)]
    fn chunk<V: Lanes, const KIND: u8>(&self, chunk: usize) -> [V; STEPS] {
        let size = chunk_size(KIND);
        let rest = &self.bytes[chunk * size..];
        for line in 0..size.div_ceil(64) {
            // Rows follow each other, so this runs ahead into the next ones.
            prefetch(rest.as_ptr().wrapping_add(AHEAD + 64 * line));
        }
        let mut padded = [0; MAX_CHUNK_SIZE];
        let bytes = if rest.len() >= size {
            &rest[..size]
        } else {
            padded[..rest.len()].copy_from_slice(rest);
            &padded[..size]
        };
        if !is_dense(KIND) {
            let [scale, bias] = self.groups.of_chunk(chunk);
            return V::packed::<KIND>(bytes, scale, bias);
        }
        let mut values = [V::zero(); STEPS];
        for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(bits(KIND))) {
            *value = V::dense::<KIND>(bytes);
        }
        values
    }
}

/// Asks memory for the line at `at`, which need not be ours.
#[inline(always)]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it does nothing that a program can see.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
