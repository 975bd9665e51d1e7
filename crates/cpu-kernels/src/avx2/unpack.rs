//! From weights as they are stored to floats, 64 at a time.

use std::arch::x86_64::*;

use super::{CHUNK, STEPS};
use crate::generic::{E2M1, E4M3};
use crate::values::e8m0;
use crate::{Dtype, Packing};

// What weights are: the bits of an affine code, or:
/// Four-bit floats.
pub(super) const FP4: u8 = 14;
/// Eight-bit floats.
pub(super) const FP8: u8 = 18;
/// Dense.
pub(super) const FROM_BF16: u8 = 20;
pub(super) const FROM_F16: u8 = 21;
pub(super) const FROM_F32: u8 = 22;

/// Bits of one weight.
pub(super) const fn bits(kind: u8) -> usize {
    match kind {
        FROM_BF16 | FROM_F16 => 16,
        FROM_F32 => 32,
        FP4 => 4,
        FP8 => 8,
        bits => bits as usize,
    }
}

/// Whether weights are not packed.
pub(super) const fn is_dense(kind: u8) -> bool {
    matches!(kind, FROM_BF16 | FROM_F16 | FROM_F32)
}

/// Bytes of a chunk.
pub(super) const fn chunk_size(kind: u8) -> usize {
    CHUNK / 8 * bits(kind)
}

/// The groups of a matrix of packed weights.
#[derive(Clone, Copy)]
pub(super) struct Groups<'a> {
    pub(super) packing: Packing,
    pub(super) group_size: usize,
    /// Groups in a row of weights.
    pub(super) in_row: usize,
    pub(super) scales: &'a [u8],
    pub(super) biases: &'a [u8],
}

/// The scales and biases of one row's groups, as floats; kept from row to row for their memory.
#[derive(Default)]
pub(super) struct OfRow {
    scales: Vec<f32>,
    biases: Vec<f32>,
    /// The group in its chunk that each lane belongs to.
    of_lane: [i32; 8],
    in_two_chunks: usize,
}

impl OfRow {
    /// Makes room for a row's, and for the zeros of what a chunk has after the row's end.
    pub(super) fn prepare(&mut self, groups: &Groups<'_>) {
        let Groups { group_size, in_row, .. } = *groups;
        for floats in [&mut self.scales, &mut self.biases] {
            floats.clear();
            floats.resize(in_row + CHUNK, 0.0);
        }
        self.of_lane = std::array::from_fn(|lane| (8 * lane / group_size) as i32);
        self.in_two_chunks = 2 * CHUNK / group_size;
    }

    /// Takes those of row `row`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn set(&mut self, groups: &Groups<'_>, row: usize) {
        let Groups { packing, in_row, scales, biases, .. } = *groups;
        let size = packing.scale_size();
        let bytes = row * in_row * size..(row + 1) * in_row * size;
        match packing {
            Packing::Affine { scales: dtype, .. } => {
                floats(dtype, &scales[bytes.clone()], &mut self.scales);
                floats(dtype, &biases[bytes], &mut self.biases);
            }
            Packing::Mxfp4 | Packing::Mxfp8 => {
                for (to, code) in self.scales.iter_mut().zip(&scales[bytes]) {
                    *to = e8m0(*code);
                }
            }
            Packing::Nvfp4 => {
                for (to, code) in self.scales.iter_mut().zip(&scales[bytes]) {
                    *to = E4M3[usize::from(*code)];
                }
            }
        }
    }

    /// Each lane's scale and bias in chunk `chunk`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn of_chunk(&self, chunk: usize) -> [__m256; 2] {
        let first = chunk * self.in_two_chunks / 2;
        let (scales, biases) = (&self.scales[first..][..8], &self.biases[first..][..8]);
        // SAFETY: all three have 32 bytes.
        unsafe {
            let of_lane = _mm256_loadu_si256(self.of_lane.as_ptr().cast());
            [
                _mm256_permutevar8x32_ps(_mm256_loadu_ps(scales.as_ptr()), of_lane),
                _mm256_permutevar8x32_ps(_mm256_loadu_ps(biases.as_ptr()), of_lane),
            ]
        }
    }
}

/// The elements of `data`, at the beginning of `to`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn floats(dtype: Dtype, data: &[u8], to: &mut [f32]) {
    let size = 8 * dtype.size();
    for (to, bytes) in to.as_chunks_mut::<8>().0.iter_mut().zip(data.chunks(size)) {
        let mut padded = [0; 32];
        let bytes = if bytes.len() == size {
            bytes
        } else {
            padded[..bytes.len()].copy_from_slice(bytes);
            &padded[..size]
        };
        let values = match dtype {
            Dtype::F32 => dense::<FROM_F32>(bytes, 0),
            Dtype::F16 => dense::<FROM_F16>(bytes, 0),
            Dtype::Bf16 => dense::<FROM_BF16>(bytes, 0),
        };
        // SAFETY: the array has 32 bytes.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), values) };
    }
}

/// The weights of a chunk, of which `bytes` has at least all; packed ones lie as
/// [`set_rows`](super::set_rows) says.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn unpack<const KIND: u8>(bytes: &[u8], [scale, bias]: [__m256; 2]) -> [__m256; STEPS] {
    let mut values = [_mm256_setzero_ps(); STEPS];
    if is_dense(KIND) {
        for (step, value) in values.iter_mut().enumerate() {
            *value = dense::<KIND>(bytes, step);
        }
        return values;
    }
    let words = words::<KIND>(bytes);
    for (step, value) in values.iter_mut().enumerate() {
        // The second words begin where the first codes of four are behind them.
        let (words, skipped) = match bits(KIND) {
            5.. if step >= 4 => (words[1], 8 * (bits(KIND) - 4)),
            _ => (words[0], 0),
        };
        let first = (bits(KIND) * step - skipped) as i32;
        let codes = _mm256_srlv_epi32(words, _mm256_set1_epi32(first));
        *value = match KIND {
            FP4 => {
                // SAFETY: the table has sixteen floats, of which the first eight are read.
                let table = unsafe { _mm256_loadu_ps(E2M1.as_ptr()) };
                // Of an index the last three bits count; the fourth is the sign.
                let size = _mm256_permutevar8x32_ps(table, codes);
                let sign =
                    _mm256_and_si256(_mm256_slli_epi32::<28>(codes), _mm256_set1_epi32(i32::MIN));
                _mm256_mul_ps(_mm256_or_ps(size, _mm256_castsi256_ps(sign)), scale)
            }
            FP8 => {
                let codes = _mm256_and_si256(codes, _mm256_set1_epi32(255));
                // SAFETY: the table has 256 floats.
                let values = unsafe { _mm256_i32gather_ps::<4>(E4M3.as_ptr(), codes) };
                _mm256_mul_ps(values, scale)
            }
            _ => {
                let mask = _mm256_set1_epi32((1 << bits(KIND)) - 1);
                let codes = _mm256_cvtepi32_ps(_mm256_and_si256(codes, mask));
                _mm256_fmadd_ps(codes, scale, bias)
            }
        };
    }
    values
}

/// Eight dense weights.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dense<const KIND: u8>(bytes: &[u8], step: usize) -> __m256 {
    let bytes = &bytes[bits(KIND) * step..][..bits(KIND)];
    // SAFETY: the 16 or 32 bytes lie inside the slice.
    unsafe {
        match KIND {
            FROM_F32 => _mm256_loadu_ps(bytes.as_ptr().cast()),
            FROM_F16 => _mm256_cvtph_ps(_mm_loadu_si128(bytes.as_ptr().cast())),
            _ => {
                let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(bytes.as_ptr().cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
            }
        }
    }
}

/// For each lane the bits of its eight codes; where these are more than 32, their first ones and their
/// last ones.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn words<const KIND: u8>(bytes: &[u8]) -> [__m256i; 2] {
    let bytes = &bytes[..chunk_size(KIND)];
    let at = |first: usize| bytes[first..].as_ptr();
    match bits(KIND) {
        2 => {
            // SAFETY: a chunk has 16 bytes.
            let words = unsafe { _mm256_cvtepu16_epi32(_mm_loadu_si128(at(0).cast())) };
            [words; 2]
        }
        4 => {
            // SAFETY: a chunk has 32 bytes.
            let words = unsafe { _mm256_loadu_si256(at(0).cast()) };
            [words; 2]
        }
        8 => {
            // SAFETY: a chunk has 64 bytes.
            let (a, b) = unsafe { (_mm256_loadu_ps(at(0).cast()), _mm256_loadu_ps(at(32).cast())) };
            let even = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(a, b));
            let odd = _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(a, b));
            // Both work on halves of a register.
            [_mm256_permute4x64_epi64::<0xd8>(even), _mm256_permute4x64_epi64::<0xd8>(odd)]
        }
        bits => {
            let mut words = [[0; 8]; 2];
            for lane in 0..8 {
                let codes = &bytes[bits * lane..][..bits];
                let mut first = [0; 4];
                let count = bits.min(4);
                first[..count].copy_from_slice(&codes[..count]);
                words[0][lane] = i32::from_le_bytes(first);
                if bits > 4 {
                    first.copy_from_slice(&codes[bits - 4..]);
                    words[1][lane] = i32::from_le_bytes(first);
                }
            }
            // SAFETY: both arrays have 32 bytes.
            words.map(|words| unsafe { _mm256_loadu_si256(words.as_ptr().cast()) })
        }
    }
}
