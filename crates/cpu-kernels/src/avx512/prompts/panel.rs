//! Weights as pairs of bf16, column beside column.

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::lanes::Line;
use super::super::scales::Groups;
use super::super::transpose::transpose;
use super::super::unpack::{spread, widen, word_table};
use super::sizes::{COLUMNS, DENSE_PART, UNROLLED};
use crate::kind::{FP4, bits};

/// Columns of a vector.
const LANES: usize = COLUMNS / 2;

/// Columns of weights; kept from product to product for their memory.
#[derive(Default)]
pub(super) struct Panel {
    /// `[blocks of columns, steps / UNROLLED]`.
    values: Vec<[[Line; 2]; UNROLLED]>,
    /// `[blocks of columns, groups]`.
    scales: Vec<[Line; 2]>,
    biases: Vec<[Line; 2]>,
    /// Of a block.
    steps: usize,
    scales_in_block: usize,
    biases_in_block: usize,
}

/// A block of columns of a panel.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    /// Pairs by steps.
    pub(super) values: &'a [[[Line; 2]; UNROLLED]],
    /// By groups; empty where the values are the weights.
    pub(super) scales: &'a [[Line; 2]],
    /// By groups; empty where there are none.
    pub(super) biases: &'a [[Line; 2]],
}

impl Panel {
    /// Columns `32 * block` and after.
    pub(super) fn columns(&self, block: usize) -> Columns<'_> {
        let (scales, biases) = (self.scales_in_block, self.biases_in_block);
        let steps = self.steps / UNROLLED;
        Columns {
            values: &self.values[block * steps..][..steps],
            scales: &self.scales[block * scales..][..scales],
            biases: &self.biases[block * biases..][..biases],
        }
    }

    /// Parts that a block of columns is multiplied in.
    pub(super) fn parts(&self) -> usize {
        match self.scales_in_block {
            0 => (self.steps / UNROLLED).div_ceil(DENSE_PART),
            groups => groups,
        }
    }

    fn set_sizes(&mut self, blocks: usize, steps: usize, scales: usize, biases: usize) {
        let zero = [Line::ZERO; 2];
        // Only growing, so that memory is not cleared for each panel.
        let values = blocks * steps / UNROLLED;
        self.values.resize(self.values.len().max(values), [zero; UNROLLED]);
        self.scales.resize(self.scales.len().max(blocks * scales), zero);
        self.biases.resize(self.biases.len().max(blocks * biases), zero);
        (self.steps, self.scales_in_block, self.biases_in_block) = (steps, scales, biases);
    }
}

/// A matrix of weights.
pub(super) struct Source<'a> {
    pub(super) k: usize,
    pub(super) data: &'a [u8],
    /// None of bf16.
    pub(super) groups: Option<Groups<'a>>,
    pub(super) group_size: usize,
}

/// How many codes a lane has before they become pairs: the first half is paired with the second
/// half.
pub(super) fn codes_of_word(kind: u8) -> usize {
    match bits(kind) {
        2 => 16,
        4 => 8,
        _ => 4,
    }
}

impl Source<'_> {
    /// Rows `columns` of a packed matrix.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
    pub(super) fn unpack<const KIND: u8>(&self, columns: Range<usize>, panel: &mut Panel) {
        let Some(groups) = &self.groups else { return };
        let (steps, blocks) = (self.k / 2, columns.len().div_ceil(COLUMNS));
        let scales = self.k / self.group_size;
        let biases = if groups.biases_in_row() == 0 { 0 } else { scales };
        panel.set_sizes(blocks, steps, scales, biases);
        let (mut some_scales, mut some_biases) = (Vec::new(), Vec::new());
        let size = self.k / 8 * bits(KIND);
        for first in columns.clone().step_by(LANES) {
            let rows = first..columns.end.min(first + LANES);
            let (block, half) =
                ((first - columns.start) / COLUMNS, (first - columns.start) / LANES % 2);
            let codes = &self.data[rows.start * size..rows.end * size];
            let values = &mut panel.values[block * steps / UNROLLED..][..steps / UNROLLED];
            unpack_rows::<KIND>(codes, size, values.as_flattened_mut(), half);
            for (lane, row) in rows.enumerate() {
                groups.write(row, &mut some_scales, &mut some_biases);
                let to = &mut panel.scales[block * scales..][..scales];
                write_lane(&some_scales, to, (half, lane));
                let to = &mut panel.biases[block * biases..][..biases];
                write_lane(&some_biases, to, (half, lane));
            }
        }
    }

    /// Rows `columns` of a matrix of bf16.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn copy(&self, columns: Range<usize>, panel: &mut Panel) {
        let (steps, blocks) = (self.group_size / 2, columns.len().div_ceil(COLUMNS));
        panel.set_sizes(blocks, steps, 0, 0);
        let size = 2 * self.k;
        for first in columns.clone().step_by(LANES) {
            let rows = first..columns.end.min(first + LANES);
            let (block, half) =
                ((first - columns.start) / COLUMNS, (first - columns.start) / LANES % 2);
            let values = &mut panel.values[block * steps / UNROLLED..][..steps / UNROLLED];
            let bytes = &self.data[rows.start * size..rows.end * size];
            for (at, to) in values.as_flattened_mut().chunks_mut(LANES).enumerate() {
                let words = transpose(lines(bytes, size, at * 64, 64));
                for (to, words) in to.iter_mut().zip(words) {
                    to[half].set(words);
                }
            }
        }
    }
}

/// Up to 16 rows of `size` bytes of codes as the first or second vectors of `to`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
fn unpack_rows<const KIND: u8>(rows: &[u8], size: usize, to: &mut [[Line; 2]], half: usize) {
    if matches!(KIND, 2 | 4 | FP4) {
        // A word has 16 or 8 codes. A pair of a lane is looked up by the lowest bits of both halves
        // of a word.
        let table = word_table::<KIND>();
        for (at, to) in to.chunks_mut(512 / bits(KIND) / 2).enumerate() {
            let words = transpose(lines(rows, size, at * 64, 64));
            for (words, to) in words.into_iter().zip(to.chunks_mut(codes_of_word(KIND) / 2)) {
                for (i, to) in to.iter_mut().enumerate() {
                    let shift = _mm_cvtsi64_si128((i * bits(KIND)) as i64);
                    let codes = _mm512_srl_epi16(words, shift);
                    to[half].set(_mm512_permutexvar_epi16(codes, table));
                }
            }
        }
        return;
    }
    // 64 codes of each row, a byte each.
    let each = 8 * bits(KIND);
    for (at, to) in to.chunks_mut(32).enumerate() {
        let packed = lines(rows, size, at * each, each);
        let mut codes = [_mm512_setzero_si512(); LANES];
        for (codes, packed) in codes.iter_mut().zip(packed) {
            *codes = spread::<KIND>(packed);
        }
        for (codes, to) in transpose(codes).into_iter().zip(to.chunks_mut(2)) {
            for (to, values) in to.iter_mut().zip(widen::<KIND>(codes)) {
                to[half].set(values);
            }
        }
    }
}

/// `count` bytes from byte `first` on of up to 16 rows of `size` bytes, zeros after their end.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn lines(rows: &[u8], size: usize, first: usize, count: usize) -> [__m512i; LANES] {
    let count = count.min(size - first);
    let mut lines = [_mm512_setzero_si512(); LANES];
    for (line, row) in lines.iter_mut().zip(rows.chunks_exact(size)) {
        let part = &row[first..][..count];
        // SAFETY: the mask lets only the part be read.
        *line = unsafe { _mm512_maskz_loadu_epi8(u64::MAX >> (64 - count), part.as_ptr().cast()) };
    }
    lines
}

/// Writes the values of a row into a lane, group by group.
fn write_lane(values: &[f32], to: &mut [[Line; 2]], (half, lane): (usize, usize)) {
    for (to, value) in to.iter_mut().zip(values) {
        to[half].0[lane] = value.to_bits();
    }
}
