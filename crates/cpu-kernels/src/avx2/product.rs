//! Products with weights that become floats.

use std::arch::x86_64::*;
use std::ops::Range;

use super::unpack::{Groups, OfRow, bits, chunk_size, is_dense, unpack};
use super::{CHUNK, Chunk, STEPS};
use crate::output::Output;

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

    /// Columns `columns` for the only `M` rows of x, unpacking in registers.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn few<const KIND: u8, const M: usize>(
        &self,
        columns: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let mut x: [&[Chunk]; M] = [&[]; M];
        for (i, x) in x.iter_mut().enumerate() {
            *x = self.row(i);
        }
        self.prepare(&mut scratch.groups);
        for first in columns.clone().step_by(4) {
            let count = 4.min(columns.end - first);
            let mut results = [[_mm256_setzero_ps(); 4]; M];
            for j in 0..count {
                let row = self.weights_of::<KIND>(first + j, &mut scratch.groups);
                let mut totals = [_mm256_setzero_ps(); M];
                for chunk in 0..self.chunks() {
                    let weights = row.chunk::<KIND>(chunk);
                    for i in 0..M {
                        let mut dots = [_mm256_setzero_ps(); 2];
                        for (step, weights) in weights.iter().enumerate() {
                            let dot = &mut dots[step % 2];
                            *dot = _mm256_fmadd_ps(x[i][chunk].step(step), *weights, *dot);
                        }
                        totals[i] = _mm256_add_ps(totals[i], _mm256_add_ps(dots[0], dots[1]));
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
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn many<const KIND: u8>(&self, columns: Range<usize>, scratch: &mut Scratch) {
        let (chunks, Scratch { panel, groups }) = (self.chunks(), scratch);
        self.prepare(groups);
        // Only growing, so that memory is not cleared for each panel.
        panel.resize(panel.len().max(columns.len() * chunks), Chunk::ZERO);
        for (row, to) in columns.clone().zip(panel.chunks_exact_mut(chunks)) {
            let row = self.weights_of::<KIND>(row, groups);
            for (chunk, to) in to.iter_mut().enumerate() {
                to.set(row.chunk::<KIND>(chunk));
            }
        }
        for first in (0..self.m).step_by(TILE) {
            match self.m - first {
                1 => self.rows_of_panel::<1>(first, columns.clone(), panel),
                2 => self.rows_of_panel::<2>(first, columns.clone(), panel),
                _ => self.rows_of_panel::<TILE>(first, columns.clone(), panel),
            }
        }
    }

    /// `M` rows of x from row `first_x` on, times the whole panel.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn rows_of_panel<const M: usize>(
        &self,
        first_x: usize,
        columns: Range<usize>,
        panel: &[Chunk],
    ) {
        let (chunks, height) = (self.chunks(), columns.len());
        let mut x: [&[Chunk]; M] = [&[]; M];
        for (i, x) in x.iter_mut().enumerate() {
            *x = self.row(first_x + i);
        }
        for first in (0..height).step_by(2) {
            let count = 2.min(height - first);
            // A missing row repeats the last one.
            let w = [first, first + count - 1].map(|row| &panel[row * chunks..][..chunks]);
            let mut totals = [[_mm256_setzero_ps(); 4]; M];
            for chunk in 0..chunks {
                let mut dots = [[[_mm256_setzero_ps(); 2]; 2]; M];
                for step in 0..STEPS {
                    let w0 = w[0][chunk].step(step);
                    let w1 = w[1][chunk].step(step);
                    for i in 0..M {
                        let x = x[i][chunk].step(step);
                        let [dot0, dot1] = &mut dots[i];
                        dot0[step % 2] = _mm256_fmadd_ps(x, w0, dot0[step % 2]);
                        dot1[step % 2] = _mm256_fmadd_ps(x, w1, dot1[step % 2]);
                    }
                }
                for i in 0..M {
                    for j in 0..2 {
                        let dot = _mm256_add_ps(dots[i][j][0], dots[i][j][1]);
                        totals[i][j] = _mm256_add_ps(totals[i][j], dot);
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
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn weights_of<'r, const KIND: u8>(&'r self, row: usize, groups: &'r mut OfRow) -> Row<'r> {
        if let Some(of_matrix) = &self.groups {
            groups.set(of_matrix, row);
        }
        let size = self.k * bits(KIND) / 8;
        Row { bytes: &self.data[row * size..][..size], groups }
    }

    /// Sums the lanes, and writes `count` columns from row and column on.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn store<const M: usize>(
        &self,
        (row, column, count): (usize, usize, usize),
        totals: &[[__m256; 4]; M],
    ) {
        for (i, totals) in totals.iter().enumerate() {
            let mut sums = [0.0; 4];
            // SAFETY: the array has 16 bytes.
            unsafe { _mm_storeu_ps(sums.as_mut_ptr(), sum_lanes(*totals)) };
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
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn chunk<const KIND: u8>(&self, chunk: usize) -> [__m256; STEPS] {
        let size = chunk_size(KIND);
        let rest = &self.bytes[chunk * size..];
        for line in 0..size.div_ceil(64) {
            // Rows follow each other, so this runs ahead into the next ones.
            _mm_prefetch::<_MM_HINT_T0>(rest.as_ptr().wrapping_add(AHEAD + 64 * line).cast());
        }
        let groups =
            if is_dense(KIND) { [_mm256_setzero_ps(); 2] } else { self.groups.of_chunk(chunk) };
        if rest.len() >= size {
            return unpack::<KIND>(&rest[..size], groups);
        }
        let mut padded = [0; MAX_CHUNK_SIZE];
        padded[..rest.len()].copy_from_slice(rest);
        unpack::<KIND>(&padded[..size], groups)
    }
}

/// The sums of the lanes of four vectors, in an order that is the same for each.
#[inline]
#[target_feature(enable = "avx2")]
fn sum_lanes([a, b, c, d]: [__m256; 4]) -> __m128 {
    let sums = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums))
}
