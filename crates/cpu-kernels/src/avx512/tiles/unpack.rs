//! Weights as tiles of bf16, in their own order.

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::lanes::Line;
use super::super::scales::{Groups, e4m3_of};
use super::super::unpack::{spread_codes, value};
use super::instructions::{ROWS, STEP, Tile};
use crate::kind::{FP4, FP8, bits};

/// A packed matrix.
pub(super) struct Source<'a> {
    pub(super) k: usize,
    pub(super) data: &'a [u8],
    /// Weights that share a scale.
    pub(super) group_size: usize,
    pub(super) groups: Groups<'a>,
}

/// Values by the lowest five bits of a word: what is above the code repeats.
const fn values(kind: u8) -> [f32; 32] {
    let mut table = [0.0; 32];
    let mut i = 0;
    while i < 32 {
        table[i] = value(kind, i as u8);
        i += 1;
    }
    table
}

struct Values<const KIND: u8>;

impl<const KIND: u8> Values<KIND> {
    const TABLE: &'static [f32; 32] = &values(KIND);
}

impl Source<'_> {
    /// Rows `columns` as tiles `[blocks of 16 rows, steps]`; zeros after the last row.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
    pub(super) fn fill<const KIND: u8>(
        &self,
        columns: Range<usize>,
        steps: usize,
        panel: &mut [Tile],
    ) {
        let size = self.k * bits(KIND) / 8;
        let (mut scales, mut biases) = (Vec::new(), Vec::new());
        for (block, tiles) in panel.chunks_exact_mut(steps).enumerate() {
            for i in 0..ROWS {
                let row = columns.start + block * ROWS + i;
                if row >= columns.end {
                    tiles.iter_mut().for_each(|tile| tile.0[i] = Line::ZERO);
                    continue;
                }
                let bytes = &self.data[row * size..][..size];
                self.groups.write(row, &mut scales, &mut biases);
                self.unpack_row::<KIND>(bytes, (&scales, &biases), i, tiles);
            }
        }
    }

    /// Row `i` of `tiles` from the codes of a row.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
    fn unpack_row<const KIND: u8>(
        &self,
        bytes: &[u8],
        (scales, biases): (&[f32], &[f32]),
        i: usize,
        tiles: &mut [Tile],
    ) {
        let size = 8 * bits(KIND);
        for (at, two) in tiles.chunks_mut(2).enumerate() {
            let rest = &bytes[at * size..];
            let codes = if rest.len() >= size {
                spread_codes::<KIND>(rest, 0)
            } else {
                let mut padded = [0; 64];
                padded[..rest.len()].copy_from_slice(rest);
                spread_codes::<KIND>(&padded, 0)
            };
            let halves = [_mm512_castsi512_si256(codes), _mm512_extracti64x4_epi64::<1>(codes)];
            for ((half, tile), codes) in two.iter_mut().enumerate().zip(halves) {
                let first = (2 * at + half) * STEP;
                // A group of 16 has a neighbour in the same line, unless k ends.
                let group = first / self.group_size;
                let next = ((first + STEP / 2) / self.group_size).min(scales.len() - 1);
                let of = |values: &[f32], group: usize| {
                    _mm512_set1_ps(values.get(group).copied().unwrap_or(0.0))
                };
                let scales = [of(scales, group), of(scales, next)];
                let biases = [of(biases, group), of(biases, next)];
                let shared = self.group_size >= STEP;
                tile.0[i].set(scaled::<KIND>(codes, scales, biases, shared));
            }
        }
    }
}

/// `scale · value + bias` of 32 codes as bf16, for the first 16 and the last 16, where scales and
/// biases may be `shared`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
fn scaled<const KIND: u8>(
    codes: __m256i,
    scales: [__m512; 2],
    biases: [__m512; 2],
    shared: bool,
) -> __m512i {
    let round = |values: [__m512; 2]| {
        let low = _mm512_fmadd_ps(values[0], scales[0], biases[0]);
        let high = _mm512_fmadd_ps(values[1], scales[1], biases[1]);
        // SAFETY: both types are 64 bytes of plain bits.
        unsafe { std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low)) }
    };
    match KIND {
        // The scaled values of all codes, among which each code chooses.
        FP4 => {
            let values = table(Values::<KIND>::TABLE);
            let words = _mm512_and_si512(_mm512_cvtepu8_epi16(codes), _mm512_set1_epi16(15));
            let second = _mm512_set1_epi16(16);
            let words = _mm512_mask_add_epi16(words, 0xffff_0000, words, second);
            _mm512_permutexvar_epi16(words, round(values))
        }
        // What is above a code chooses among values that repeat, and so must scales.
        2..=5 if shared => {
            let words = _mm512_cvtepu8_epi16(codes);
            _mm512_permutexvar_epi16(words, round(table(Values::<KIND>::TABLE)))
        }
        FP8 => {
            let low = e4m3_of(_mm256_castsi256_si128(codes));
            round([low, e4m3_of(_mm256_extracti128_si256::<1>(codes))])
        }
        _ => {
            let codes =
                _mm256_and_si256(codes, _mm256_set1_epi8((255u8 >> (8 - bits(KIND))) as i8));
            let float = |codes| _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes));
            let low = float(_mm256_castsi256_si128(codes));
            round([low, float(_mm256_extracti128_si256::<1>(codes))])
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn table(values: &[f32; 32]) -> [__m512; 2] {
    // SAFETY: the array has twice 16 floats.
    unsafe { [_mm512_loadu_ps(values.as_ptr()), _mm512_loadu_ps(values.as_ptr().add(16))] }
}

/// Rows `columns` of `data`, `[n, k]` of bf16, as tiles `[blocks of 16 rows, steps]`; zeros after
/// the last row and after the end of k.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn copy(data: &[u8], k: usize, columns: Range<usize>, panel: &mut [Tile]) {
    for (block, tiles) in panel.chunks_exact_mut(k.div_ceil(STEP)).enumerate() {
        for i in 0..ROWS {
            let row = columns.start + block * ROWS + i;
            let bytes = if row < columns.end { &data[2 * k * row..][..2 * k] } else { &[] };
            let mut parts = bytes.chunks(2 * STEP);
            for tile in tiles.iter_mut() {
                let part = parts.next().unwrap_or_default();
                let mask = ((1u64 << (part.len() / 2)) - 1) as u32;
                // SAFETY: the mask lets only the part be read.
                tile.0[i].set(unsafe { _mm512_maskz_loadu_epi16(mask, part.as_ptr().cast()) });
            }
        }
    }
}
