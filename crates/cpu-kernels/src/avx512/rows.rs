//! Rows of x in the form that the kernels read: whole lines, in the order of the weights' codes.

use std::arch::x86_64::*;

use super::lanes::Line;
use super::unpack::CHUNK;
use crate::Dtype;
use crate::values::widen;

/// Rows of x; kept from product to product for their memory.
#[derive(Default)]
pub(super) struct Rows {
    lines: Vec<Line>,
    sums: Vec<Line>,
    lines_in_row: usize,
    sums_in_row: usize,
    /// Rows that stand for one row of x, whose results are added.
    pub(super) parts: usize,
}

impl Rows {
    /// Row `i` of `self.parts` for each row of x.
    pub(super) fn row(&self, i: usize) -> &[Line] {
        &self.lines[i * self.lines_in_row..][..self.lines_in_row]
    }

    /// The sums of row `i` over each group, sixteen to a line.
    pub(super) fn sums(&self, i: usize) -> &[Line] {
        &self.sums[i * self.sums_in_row..][..self.sums_in_row]
    }

    /// `x`, `[m, k]`, as floats.
    pub(super) fn set_floats(&mut self, dtype: Dtype, x: &[u8], k: usize) {
        (self.parts, self.lines_in_row, self.sums_in_row) = (1, k.div_ceil(16), 0);
        let m = x.len() / (k * dtype.size());
        self.lines.resize(m * self.lines_in_row, Line::ZERO);
        let rows = x.chunks_exact(k * dtype.size());
        for (to, row) in self.lines.chunks_exact_mut(self.lines_in_row).zip(rows) {
            for (line, part) in to.iter_mut().zip(row.chunks(16 * dtype.size())) {
                let mut values = [0.0; 16];
                widen(dtype, part, &mut values);
                *line = Line(values.map(f32::to_bits));
            }
        }
    }

    /// `x`, `[m, k]` of bf16, as pairs.
    pub(super) fn set_pairs(&mut self, x: &[u8], k: usize) {
        (self.parts, self.lines_in_row, self.sums_in_row) = (1, k.div_ceil(32), 0);
        self.lines.resize(x.len() / (2 * k) * self.lines_in_row, Line::ZERO);
        for (to, row) in self.lines.chunks_exact_mut(self.lines_in_row).zip(x.chunks_exact(2 * k)) {
            for (line, part) in to.iter_mut().zip(row.chunks(64)) {
                let mut bytes = [0; 64];
                bytes[..part.len()].copy_from_slice(part);
                let (words, _) = bytes.as_chunks::<4>();
                *line = Line(std::array::from_fn(|i| u32::from_le_bytes(words[i])));
            }
        }
    }

    /// `x`, `[m, k]`, as parts in bf16 that add up to it, in `order` within each chunk, with the
    /// sums over groups of `group_size` if `sums`.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
    pub(super) fn set_parts(
        &mut self,
        (dtype, x): (Dtype, &[u8]),
        k: usize,
        order: &[u8; CHUNK],
        group_size: Option<usize>,
    ) {
        let chunks = k.div_ceil(CHUNK);
        self.parts = match dtype {
            Dtype::Bf16 => 1,
            Dtype::F16 => 2,
            Dtype::F32 => 3,
        };
        self.lines_in_row = chunks * 8;
        self.sums_in_row = group_size.map_or(0, |size| (k / size).div_ceil(16));
        let m = x.len() / (k * dtype.size());
        self.lines.resize(m * self.parts * self.lines_in_row, Line::ZERO);
        self.sums.clear();
        self.sums.resize(m * self.parts * self.sums_in_row, Line::ZERO);
        for (i, row) in x.chunks_exact(k * dtype.size()).enumerate() {
            for (chunk, bytes) in row.chunks(CHUNK * dtype.size()).enumerate() {
                let mut values = [0.0; CHUNK];
                widen(dtype, bytes, &mut values);
                for part in 0..self.parts {
                    let row = i * self.parts + part;
                    // A single part is the whole.
                    let high = if self.parts == 1 { values } else { take_high(&mut values) };
                    let to = &mut self.lines[row * self.lines_in_row + chunk * 8..][..8];
                    let mut words = [0; CHUNK];
                    for (word, value) in words.iter_mut().zip(&high) {
                        *word = (value.to_bits() >> 16) as u16;
                    }
                    reorder(&words, order, to);
                    let Some(size) = group_size else { continue };
                    let sums = &mut self.sums[row * self.sums_in_row..][..self.sums_in_row];
                    for (i, group) in high[..bytes.len() / dtype.size()].chunks(size).enumerate() {
                        let at = chunk * CHUNK / size + i;
                        sums[at / 16].0[at % 16] = sum(group).to_bits();
                    }
                }
            }
        }
    }
}

/// The parts of `values` that bf16 holds, cut off, not rounded; `values` keeps the rest.
#[inline(always)]
fn take_high(values: &mut [f32; CHUNK]) -> [f32; CHUNK] {
    let mut high = [0.0; CHUNK];
    for (high, value) in high.iter_mut().zip(values) {
        // What is no number stays so without its low bits.
        let quiet = if value.is_nan() { 0x0040_0000 } else { 0 };
        *high = f32::from_bits(value.to_bits() & 0xffff_0000 | quiet);
        *value = if value.is_finite() { *value - *high } else { 0.0 };
    }
    high
}

/// The sum of a group, whose length is a multiple of 16.
#[inline(always)]
fn sum(group: &[f32]) -> f32 {
    let mut lanes = [0.0; 16];
    for part in group.as_chunks::<16>().0 {
        for (lane, value) in lanes.iter_mut().zip(part) {
            *lane += value;
        }
    }
    for width in [8, 4, 2, 1] {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}

/// Brings `words` in `order`, as eight lines.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
fn reorder(words: &[u16; CHUNK], order: &[u8; CHUNK], to: &mut [Line]) {
    let mut from = [_mm512_setzero_si512(); 8];
    for (from, words) in from.iter_mut().zip(words.as_chunks::<32>().0) {
        // SAFETY: 32 words are 64 bytes.
        *from = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
    }
    for (line, order) in to.iter_mut().zip(order.as_chunks::<32>().0) {
        // SAFETY: the array has 32 bytes.
        let order = unsafe { _mm256_loadu_si256(order.as_ptr().cast()) };
        let order = _mm512_cvtepu8_epi16(order);
        // The lowest six bits choose among the 64 words of two vectors, the others those two.
        let pair = _mm512_srli_epi16::<6>(order);
        let mut line_words = _mm512_permutex2var_epi16(from[0], order, from[1]);
        for i in 1..4 {
            let here = _mm512_cmpeq_epi16_mask(pair, _mm512_set1_epi16(i as i16));
            let words = _mm512_permutex2var_epi16(from[2 * i], order, from[2 * i + 1]);
            line_words = _mm512_mask_mov_epi16(line_words, here, words);
        }
        line.set(line_words);
    }
}
