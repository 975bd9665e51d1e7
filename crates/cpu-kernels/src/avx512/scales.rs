//! The scales and biases of groups, as floats.

use std::arch::x86_64::*;

use super::unpack::{CHUNK, order_of};
use crate::{Dtype, Packing};

/// The groups of a matrix of packed weights.
#[derive(Clone, Copy)]
pub(crate) struct Groups<'a> {
    packing: Packing,
    scales: &'a [u8],
    biases: &'a [u8],
    /// Groups in a row of weights.
    pub(super) in_row: usize,
    /// Groups in a chunk.
    in_chunk: usize,
    /// The group in its chunk that each lane belongs to.
    of_lane: [i32; 16],
}

impl<'a> Groups<'a> {
    pub(super) fn new(
        packing: Packing,
        kind: u8,
        (k, group_size): (usize, usize),
        scales: &'a [u8],
        biases: &'a [u8],
    ) -> Groups<'a> {
        let order = order_of(kind);
        let firsts = std::array::from_fn(|lane| usize::from(order[2 * lane]));
        let groups =
            crate::floats::Groups { packing, group_size, in_row: k / group_size, scales, biases };
        Groups::of_lanes(groups, CHUNK, firsts)
    }

    /// `groups` for chunks of `chunk` codes, of which `firsts` has one of each lane.
    pub(crate) fn of_lanes(
        groups: crate::floats::Groups<'a>,
        chunk: usize,
        firsts: [usize; 16],
    ) -> Groups<'a> {
        let crate::floats::Groups { packing, group_size, in_row, scales, biases } = groups;
        let of_lane = firsts.map(|first| (first / group_size) as i32);
        Groups { packing, scales, biases, in_row, in_chunk: chunk / group_size, of_lane }
    }

    /// The scales of row `row`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(crate) fn scales(&self, row: usize) -> Scales<'_> {
        let zero = _mm512_setzero_ps();
        Scales { groups: self, row, sixteen: zero, of_lane: _mm512_setzero_si512() }
    }

    /// The scales and biases of row `row`, with what fills up the last sixteen; no biases if the
    /// packing has none.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(super) fn write(&self, row: usize, scales: &mut Vec<f32>, biases: &mut Vec<f32>) {
        scales.resize(self.in_row.next_multiple_of(16), 0.0);
        for (i, to) in scales.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let (first, count) = (row * self.in_row + 16 * i, 16.min(self.in_row - 16 * i));
            store(self.sixteen(first, count), to);
        }
        biases.resize(16 * self.biases_in_row(), 0.0);
        for (i, to) in biases.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            store(self.bias(row, i), to);
        }
    }

    /// `count` scales from scale `first` on; 0 after them, or what a code of 0 means.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn sixteen(&self, first: usize, count: usize) -> __m512 {
        match self.packing {
            Packing::Affine { scales: dtype, .. } => floats(dtype, self.scales, first, count),
            Packing::Mxfp4 | Packing::Mxfp8 => e8m0(self.scales, first, count),
            Packing::Nvfp4 => e4m3(self.scales, first, count),
        }
    }

    /// Scales 16 · `i`.. of row `row`; after the last 0, or what a code of 0 means.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(crate) fn scale(&self, row: usize, i: usize) -> __m512 {
        self.sixteen(row * self.in_row + 16 * i, 16.min(self.in_row - 16 * i))
    }

    /// How often sixteen biases begin in a row; 0 if the packing has none.
    pub(super) fn biases_in_row(&self) -> usize {
        if self.biases.is_empty() { 0 } else { self.in_row.div_ceil(16) }
    }

    /// Biases 16 · `i`.. of row `row`; 0 after the last.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(crate) fn bias(&self, row: usize, i: usize) -> __m512 {
        let Packing::Affine { scales: dtype, .. } = self.packing else {
            return _mm512_setzero_ps();
        };
        floats(dtype, self.biases, row * self.in_row + 16 * i, 16.min(self.in_row - 16 * i))
    }
}

/// The scales of one row, chunk after chunk.
pub(crate) struct Scales<'a> {
    groups: &'a Groups<'a>,
    row: usize,
    /// Those of sixteen groups, which are one to eight chunks.
    sixteen: __m512,
    /// Each lane's group among them in the next chunk.
    of_lane: __m512i,
}

impl Scales<'_> {
    /// Each lane's scale in chunk `chunk`, the one after the last that was asked for.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub(crate) fn next(&mut self, chunk: usize) -> __m512 {
        let Groups { in_row, in_chunk, ref of_lane, .. } = *self.groups;
        let first = chunk * in_chunk;
        if first.is_multiple_of(16) {
            let count = 16.min(in_row - first);
            let first = self.row * in_row + first;
            self.sixteen = self.groups.sixteen(first, count);
            // SAFETY: the array has 64 bytes.
            self.of_lane = unsafe { _mm512_loadu_si512(of_lane.as_ptr().cast()) };
        }
        let scale = _mm512_permutexvar_ps(self.of_lane, self.sixteen);
        self.of_lane = _mm512_add_epi32(self.of_lane, _mm512_set1_epi32(in_chunk as i32));
        scale
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(values: __m512, to: &mut [f32; 16]) {
    // SAFETY: the array has 16 floats.
    unsafe { _mm512_storeu_ps(to.as_mut_ptr(), values) }
}

/// `count` elements from element `first` on; 0 after them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn floats(dtype: Dtype, data: &[u8], first: usize, count: usize) -> __m512 {
    assert!(count <= 16 && (first + count) * dtype.size() <= data.len());
    let mask = ((1u32 << count) - 1) as u16;
    // SAFETY: by the assertion, what the mask lets be read lies inside the slice.
    unsafe {
        let first = data.as_ptr().add(first * dtype.size());
        match dtype {
            Dtype::F32 => _mm512_maskz_loadu_ps(mask, first.cast()),
            Dtype::F16 => _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, first.cast())),
            Dtype::Bf16 => {
                let words = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, first.cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn bytes(data: &[u8], first: usize, count: usize) -> __m128i {
    assert!(count <= 16 && first + count <= data.len());
    let mask = ((1u32 << count) - 1) as u16;
    // SAFETY: by the assertion, what the mask lets be read lies inside the slice.
    unsafe { _mm_maskz_loadu_epi8(mask, data.as_ptr().add(first).cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn e8m0(data: &[u8], first: usize, count: usize) -> __m512 {
    let exponents = _mm512_slli_epi32::<23>(_mm512_cvtepu8_epi32(bytes(data, first, count)));
    // The lowest is a subnormal number.
    let lowest = _mm512_set1_epi32(0x0040_0000);
    _mm512_castsi512_ps(_mm512_max_epu32(exponents, lowest))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn e4m3(data: &[u8], first: usize, count: usize) -> __m512 {
    e4m3_of(bytes(data, first, count))
}

/// The values of 16 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn e4m3_of(bytes: __m128i) -> __m512 {
    let words = _mm256_cvtepu8_epi16(bytes);
    let sign = _mm256_slli_epi16::<8>(_mm256_and_si256(words, _mm256_set1_epi16(0x80)));
    let rest = _mm256_slli_epi16::<7>(_mm256_and_si256(words, _mm256_set1_epi16(0x7f)));
    // An f16 whose exponent is too small by 8.
    _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(sign, rest)), _mm512_set1_ps(256.0))
}
