//! Products with dense weights.

use std::arch::x86_64::*;
use std::ops::Range;

use super::lanes::Line;
use super::packed::store;
use super::rows::Rows;
use crate::Dtype;
use crate::kind::{FROM_BF16, FROM_F16, FROM_F32, PAIRS};
use crate::output::Output;

/// Rows of x that are multiplied with four rows of weights at a time: their sums fit in registers.
pub(super) const X_ROWS: usize = 6;

/// For so many rows of x in all, the weights' way from memory takes longer than the products.
const STREAMED: usize = 3;

/// How many bytes ahead of the weights at hand memory is asked for more.
const AHEAD: usize = 2048;

/// A product with dense weights whose sizes were checked.
pub(super) struct Dense<'a> {
    pub(super) k: usize,
    pub(super) rows: &'a Rows,
    /// Rows of x.
    pub(super) m: usize,
    pub(super) dtype: Dtype,
    /// `rows` are pairs of bf16.
    pub(super) pairs: bool,
    pub(super) data: &'a [u8],
    pub(super) out: &'a Output<'a>,
}

impl Dense<'_> {
    /// Columns `columns` of all rows.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
    pub(super) fn columns(&self, columns: Range<usize>) {
        for first in (0..self.m).step_by(X_ROWS) {
            match self.m - first {
                1 => self.some_rows::<1>(first, columns.clone()),
                2 => self.some_rows::<2>(first, columns.clone()),
                3 => self.some_rows::<3>(first, columns.clone()),
                4 => self.some_rows::<4>(first, columns.clone()),
                5 => self.some_rows::<5>(first, columns.clone()),
                _ => self.some_rows::<X_ROWS>(first, columns.clone()),
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
    fn some_rows<const M: usize>(&self, first: usize, columns: Range<usize>) {
        match self.dtype {
            Dtype::Bf16 if self.pairs => self.rows_of::<PAIRS, M>(first, columns),
            Dtype::Bf16 => self.rows_of::<FROM_BF16, M>(first, columns),
            Dtype::F16 => self.rows_of::<FROM_F16, M>(first, columns),
            Dtype::F32 => self.rows_of::<FROM_F32, M>(first, columns),
        }
    }

    /// `M` rows of x from row `first_x` on.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
    fn rows_of<const KIND: u8, const M: usize>(&self, first_x: usize, columns: Range<usize>) {
        let mut x: [&[Line]; M] = [&[]; M];
        for i in 0..M {
            x[i] = self.rows.row(first_x + i);
        }
        let row_size = self.k * self.dtype.size();
        let size = step_size(KIND);
        let steps = row_size / size;
        for first in columns.clone().step_by(4) {
            let count = 4.min(columns.end - first);
            let mut w: [&[u8]; 4] = [&[]; 4];
            for j in 0..4 {
                // Missing rows repeat the last one.
                w[j] = &self.data[(first + j.min(count - 1)) * row_size..][..row_size];
            }
            let mut totals = [[_mm512_setzero_ps(); 4]; M];
            if M <= STREAMED && self.m <= STREAMED {
                for j in 0..4 {
                    let sums = products_of_row::<KIND, M>(x, w[j], steps);
                    for i in 0..M {
                        totals[i][j] = sums[i];
                    }
                }
            } else {
                for step in 0..steps {
                    if first_x == 0 {
                        // The next four, into the second cache: the first one has x and these four.
                        for w in w {
                            let next = w.as_ptr().wrapping_add(4 * row_size + step * size);
                            _mm_prefetch::<_MM_HINT_T1>(next.cast());
                        }
                    }
                    let w0 = load::<KIND>(&w[0][step * size..][..size]);
                    let w1 = load::<KIND>(&w[1][step * size..][..size]);
                    let w2 = load::<KIND>(&w[2][step * size..][..size]);
                    let w3 = load::<KIND>(&w[3][step * size..][..size]);
                    for i in 0..M {
                        let x = &x[i][step];
                        totals[i][0] = add_products::<KIND>(totals[i][0], x, w0);
                        totals[i][1] = add_products::<KIND>(totals[i][1], x, w1);
                        totals[i][2] = add_products::<KIND>(totals[i][2], x, w2);
                        totals[i][3] = add_products::<KIND>(totals[i][3], x, w3);
                    }
                }
            }
            if steps * size < row_size {
                for j in 0..4 {
                    let mut rest = [0; 64];
                    rest[..row_size - steps * size].copy_from_slice(&w[j][steps * size..]);
                    let w = load::<KIND>(&rest[..size]);
                    for i in 0..M {
                        totals[i][j] = add_products::<KIND>(totals[i][j], &x[i][steps], w);
                    }
                }
            }
            store(self.out, 1, (first_x, first, count), &totals);
        }
    }
}

/// The products of `steps` vectors of a row of weights, which is read from its first byte to its
/// last, as memory gives it fastest.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
fn products_of_row<const KIND: u8, const M: usize>(
    x: [&[Line]; M],
    row: &[u8],
    steps: usize,
) -> [__m512; M] {
    let size = step_size(KIND);
    let mut sums = [_mm512_setzero_ps(); M];
    for step in 0..steps {
        let bytes = &row[step * size..][..size];
        // Rows follow each other, so this runs ahead into the next ones.
        _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(AHEAD).cast());
        let w = load::<KIND>(bytes);
        for i in 0..M {
            sums[i] = add_products::<KIND>(sums[i], &x[i][step], w);
        }
    }
    sums
}

/// Bytes of the weights that one vector of x is multiplied with.
pub(super) const fn step_size(kind: u8) -> usize {
    match kind {
        PAIRS | FROM_F32 => 64,
        _ => 32,
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load<const KIND: u8>(bytes: &[u8]) -> __m512 {
    assert!(bytes.len() >= step_size(KIND));
    let first = bytes.as_ptr();
    // SAFETY: the 32 or 64 bytes lie inside the slice.
    unsafe {
        match KIND {
            FROM_BF16 => {
                let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(first.cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
            }
            FROM_F16 => _mm512_cvtph_ps(_mm256_loadu_si256(first.cast())),
            _ => _mm512_loadu_ps(first.cast()),
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) fn add_products<const KIND: u8>(sum: __m512, x: &Line, w: __m512) -> __m512 {
    match KIND {
        PAIRS => {
            // SAFETY: both types are 64 bytes of plain bits.
            let w = unsafe { std::mem::transmute::<__m512, __m512bh>(w) };
            _mm512_dpbf16_ps(sum, x.pairs(), w)
        }
        _ => _mm512_fmadd_ps(x.floats(), w, sum),
    }
}
