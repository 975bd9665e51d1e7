//! Products with packed weights.

use std::arch::x86_64::*;
use std::ops::Range;

use super::lanes::{Line, sum_lanes};
use super::rows::Rows;
use super::scales::Groups;
use super::unpack::{CHUNK, unpack};
use crate::Dtype;
use crate::kind::bits;
use crate::output::Output;

/// How many bytes ahead of the codes at hand memory is asked for more.
const AHEAD: usize = 2048;

/// Rows of x that are multiplied with four unpacked rows at a time: sums over a chunk and sums over
/// all chunks fit in registers.
const TILE: usize = 3;

/// A product with packed weights whose sizes were checked.
pub(super) struct Packed<'a> {
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) rows: &'a Rows,
    /// Rows of x times their parts.
    pub(super) count: usize,
    pub(super) data: &'a [u8],
    pub(super) groups: Groups<'a>,
    pub(super) out: &'a Output<'a>,
}

/// Unpacked rows of weights; kept from product to product for their memory.
#[derive(Default)]
pub(super) struct Panel {
    codes: Vec<[Line; 8]>,
    scales: Vec<Line>,
    biases: Vec<Line>,
}

impl Packed<'_> {
    fn chunks(&self) -> usize {
        self.k.div_ceil(CHUNK)
    }

    /// The codes of row `row`.
    #[inline]
    fn row<const KIND: u8>(&self, row: usize) -> &[u8] {
        let size = self.k / 8 * bits(KIND);
        &self.data[row * size..][..size]
    }

    /// Columns `columns` for the only `M` rows of x, unpacking in registers.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
    pub(super) fn few<const KIND: u8, const M: usize>(&self, columns: Range<usize>) {
        let mut x: [&[[Line; 8]]; M] = [&[]; M];
        let mut sums: [&[Line]; M] = [&[]; M];
        for i in 0..M {
            (x[i], sums[i]) = (self.rows.row(i).as_chunks().0, self.rows.sums(i));
        }
        for first in columns.clone().step_by(4) {
            let count = 4.min(columns.end - first);
            let mut results = [[_mm512_setzero_ps(); 4]; M];
            for j in 0..count {
                let row = first + j;
                let bytes = self.row::<KIND>(row);
                let mut totals = [_mm512_setzero_ps(); M];
                let mut scales = self.groups.scales(row);
                for chunk in 0..self.chunks() {
                    let scale = scales.next(chunk);
                    let values = values::<KIND>(bytes, chunk);
                    for i in 0..M {
                        let mut dot = _mm512_setzero_ps();
                        for (x, w) in x[i][chunk].iter().zip(values) {
                            dot = _mm512_dpbf16_ps(dot, x.pairs(), pairs(w));
                        }
                        totals[i] = _mm512_fmadd_ps(dot, scale, totals[i]);
                    }
                }
                for part in 0..self.groups.biases_in_row() {
                    let bias = self.groups.bias(row, part);
                    for i in 0..M {
                        totals[i] = _mm512_fmadd_ps(bias, sums[i][part].floats(), totals[i]);
                    }
                }
                for i in 0..M {
                    results[i][j] = totals[i];
                }
            }
            store(self.out, self.rows.parts, (0, first, count), &results);
        }
    }

    /// Columns `columns` for any number of rows of x, each row of weights unpacked once.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
    pub(super) fn many<const KIND: u8>(&self, columns: Range<usize>, panel: &mut Panel) {
        let (chunks, parts) = (self.chunks(), self.groups.biases_in_row());
        let height = columns.len();
        // Only growing, so that memory is not cleared for each panel.
        panel.codes.resize(panel.codes.len().max(height * chunks), [Line::ZERO; 8]);
        panel.scales.resize(panel.scales.len().max(height * chunks), Line::ZERO);
        panel.biases.resize(panel.biases.len().max(height * parts), Line::ZERO);
        for (i, row) in columns.clone().enumerate() {
            let bytes = self.row::<KIND>(row);
            let mut scales = self.groups.scales(row);
            for chunk in 0..chunks {
                let values = values::<KIND>(bytes, chunk);
                for (line, values) in panel.codes[i * chunks + chunk].iter_mut().zip(values) {
                    line.set(values);
                }
                panel.scales[i * chunks + chunk].set_floats(scales.next(chunk));
            }
            for part in 0..parts {
                panel.biases[i * parts + part].set_floats(self.groups.bias(row, part));
            }
        }
        // Rows whose parts belong together stay together.
        let step = if self.rows.parts == 2 { 2 } else { TILE };
        for first in (0..self.count).step_by(step) {
            match step.min(self.count - first) {
                1 => self.rows_of_panel::<1>(first, columns.clone(), panel),
                2 => self.rows_of_panel::<2>(first, columns.clone(), panel),
                _ => self.rows_of_panel::<TILE>(first, columns.clone(), panel),
            }
        }
    }

    /// `M` rows of x from row `first_x` on, times the whole panel.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
    fn rows_of_panel<const M: usize>(&self, first_x: usize, columns: Range<usize>, panel: &Panel) {
        let (chunks, parts) = (self.chunks(), self.groups.biases_in_row());
        let height = columns.len();
        let mut x: [&[[Line; 8]]; M] = [&[]; M];
        let mut sums: [&[Line]; M] = [&[]; M];
        for i in 0..M {
            let row = first_x + i;
            (x[i], sums[i]) = (&self.rows.row(row).as_chunks().0[..chunks], self.rows.sums(row));
        }
        for first in (0..height).step_by(4) {
            let count = 4.min(height - first);
            let mut w: [&[[Line; 8]]; 4] = [&[]; 4];
            let (mut scales, mut biases): ([&[Line]; 4], [&[Line]; 4]) = ([&[]; 4], [&[]; 4]);
            for j in 0..4 {
                // Missing rows repeat the last one.
                let row = first + j.min(count - 1);
                w[j] = &panel.codes[row * chunks..][..chunks];
                scales[j] = &panel.scales[row * chunks..][..chunks];
                biases[j] = &panel.biases[row * parts..][..parts];
            }
            let mut totals = [[_mm512_setzero_ps(); 4]; M];
            for chunk in 0..chunks {
                let mut dots = [[_mm512_setzero_ps(); 4]; M];
                for step in 0..8 {
                    let w0 = w[0][chunk][step].pairs();
                    let w1 = w[1][chunk][step].pairs();
                    let w2 = w[2][chunk][step].pairs();
                    let w3 = w[3][chunk][step].pairs();
                    for i in 0..M {
                        let x = x[i][chunk][step].pairs();
                        dots[i][0] = _mm512_dpbf16_ps(dots[i][0], x, w0);
                        dots[i][1] = _mm512_dpbf16_ps(dots[i][1], x, w1);
                        dots[i][2] = _mm512_dpbf16_ps(dots[i][2], x, w2);
                        dots[i][3] = _mm512_dpbf16_ps(dots[i][3], x, w3);
                    }
                }
                for j in 0..4 {
                    let scale = scales[j][chunk].floats();
                    for i in 0..M {
                        totals[i][j] = _mm512_fmadd_ps(dots[i][j], scale, totals[i][j]);
                    }
                }
            }
            for part in 0..parts {
                for j in 0..4 {
                    let bias = biases[j][part].floats();
                    for i in 0..M {
                        totals[i][j] = _mm512_fmadd_ps(bias, sums[i][part].floats(), totals[i][j]);
                    }
                }
            }
            let at = (first_x / self.rows.parts, columns.start + first, count);
            store(self.out, self.rows.parts, at, &totals);
        }
    }
}

/// The values of chunk `chunk` of a row, zeros after its end.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
fn values<const KIND: u8>(row: &[u8], chunk: usize) -> [__m512i; 8] {
    let size = CHUNK / 8 * bits(KIND);
    let rest = &row[chunk * size..];
    for line in 0..size.div_ceil(64) {
        // Rows follow each other, so this runs ahead into the next ones.
        let ahead = rest.as_ptr().wrapping_add(AHEAD + 64 * line);
        _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
    }
    if rest.len() >= size {
        return unpack::<KIND>(&rest[..size]);
    }
    let mut padded = [0; CHUNK];
    padded[..rest.len()].copy_from_slice(rest);
    unpack::<KIND>(&padded[..size])
}

#[inline]
#[target_feature(enable = "avx512f")]
fn pairs(value: __m512i) -> __m512bh {
    // SAFETY: both types are 64 bytes of plain bits.
    unsafe { std::mem::transmute(value) }
}

/// Sums the lanes, adds the parts of a row, and writes `count` columns from row and column on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
pub(super) fn store<const M: usize>(
    out: &Output<'_>,
    parts: usize,
    (mut row, column, count): (usize, usize, usize),
    totals: &[[__m512; 4]; M],
) {
    let mut sums = _mm_setzero_ps();
    for (i, totals) in totals.iter().enumerate() {
        sums = _mm_add_ps(sums, sum_lanes(*totals));
        if (i + 1).is_multiple_of(parts) {
            let bytes = match out.dtype() {
                Dtype::F32 => _mm_castps_si128(sums),
                Dtype::F16 => _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(sums),
                Dtype::Bf16 => bits_of(_mm_cvtneps_pbh(sums)),
            };
            // SAFETY: both types are 16 bytes of plain bits.
            let bytes = unsafe { std::mem::transmute::<__m128i, [u8; 16]>(bytes) };
            // SAFETY: a unit of work has columns of its own, and is claimed by one thread.
            unsafe { out.store_bytes(row, column, &bytes[..count * out.dtype().size()]) };
            row += 1;
            sums = _mm_setzero_ps();
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn bits_of(value: __m128bh) -> __m128i {
    // SAFETY: both types are 16 bytes of plain bits.
    unsafe { std::mem::transmute(value) }
}
