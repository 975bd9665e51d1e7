//! Words of 32 bits of tiles exchanged with their rows: x on its way in, sums on their way out.

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::transpose::transpose;
use super::instructions::{ROWS, STEP, Tile};
use crate::output::Output;

/// Brings up to 16 `rows` of `k` bf16 into tiles: a row of a tile holds one pair of each row; zeros
/// after the last row and after the end of k.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn turn(rows: &[u8], k: usize, tiles: &mut [Tile]) {
    for (step, tile) in tiles.iter_mut().enumerate() {
        let count = STEP.min(k - step * STEP);
        let mask = u32::MAX >> (STEP - count);
        let mut words = [_mm512_setzero_si512(); ROWS];
        for (words, row) in words.iter_mut().zip(rows.chunks_exact(2 * k)) {
            let part = &row[2 * step * STEP..][..2 * count];
            // SAFETY: the mask lets only the part be read.
            *words = unsafe { _mm512_maskz_loadu_epi16(mask, part.as_ptr().cast()) };
        }
        for (line, words) in tile.0.iter_mut().zip(transpose(words)) {
            line.set(words);
        }
    }
}

/// Writes sums of two blocks of weights times one or two of x, `[weights, x]` each, as bf16 to
/// `rows` of the result, `count` columns from column `first` on.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn store(
    out: &Output<'_>,
    (rows, first, count): (Range<usize>, usize, usize),
    sums: &[Tile; 4],
) {
    for (x, row) in rows.clone().step_by(ROWS).enumerate() {
        let mut words = [[_mm512_setzero_si512(); ROWS]; 2];
        for (w, words) in words.iter_mut().enumerate() {
            let mut lines = [_mm512_setzero_si512(); ROWS];
            for (to, line) in lines.iter_mut().zip(&sums[2 * w + x].0) {
                *to = _mm512_castps_si512(line.floats());
            }
            *words = transpose(lines);
        }
        for i in 0..ROWS.min(rows.end - row) {
            let low = _mm512_castsi512_ps(words[0][i]);
            let high = _mm512_castsi512_ps(words[1][i]);
            let values = _mm512_cvtne2ps_pbh(high, low);
            // SAFETY: both types are 64 bytes of plain bits.
            let bytes = unsafe { std::mem::transmute::<__m512bh, [u8; 64]>(values) };
            // SAFETY: a unit of work has columns of its own, and is claimed by one thread.
            unsafe { out.store_bytes(row + i, first, &bytes[..2 * count]) };
        }
    }
}
