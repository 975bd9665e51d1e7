//! Vectors of AVX2 with FMA and F16C.

use std::arch::x86_64::*;

use super::codes::{self, chunk_size, place};
use super::lanes::Lanes;
use super::sizes::STEPS;
use crate::kind::{FP4, FP8, FROM_F16, FROM_F32, bits};
use crate::values::{E2M1, E4M3};

/// Made and used where the processor has these instructions alone: in kernels that are run at a
/// level that has them.
#[derive(Clone, Copy)]
pub(crate) struct Floats(pub(super) __m256);

impl Lanes for Floats {
    type Chain = Self;

    #[inline(always)]
    fn start() -> Self {
        Self::zero()
    }

    #[inline(always)]
    fn add_products(sum: Self, [a, b]: &[[f32; 8]; 2], [c, d]: [Self; 2]) -> Self {
        Self::load(b).mul_add(d, Self::load(a).mul_add(c, sum))
    }

    #[inline(always)]
    fn end(sum: Self) -> Self {
        sum
    }

    #[inline(always)]
    fn zero() -> Self {
        // SAFETY: the processor has the instructions.
        Floats(unsafe { _mm256_setzero_ps() })
    }

    #[inline(always)]
    fn load(from: &[f32; 8]) -> Self {
        // SAFETY: the processor has the instructions; an array of 32 bytes is read.
        Floats(unsafe { _mm256_loadu_ps(from.as_ptr()) })
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; 8]) {
        // SAFETY: the processor has the instructions; an array of 32 bytes is written.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: the processor has the instructions.
        Floats(unsafe { _mm256_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, sum: Self) -> Self {
        // SAFETY: the processor has the instructions.
        Floats(unsafe { _mm256_fmadd_ps(self.0, factor.0, sum.0) })
    }

    #[inline(always)]
    fn choose(values: &[f32; 8], of_lane: &[u32; 8]) -> Self {
        // SAFETY: the processor has the instructions; an array of 32 bytes is read.
        unsafe {
            let of_lane = _mm256_loadu_si256(of_lane.as_ptr().cast());
            Floats(_mm256_permutevar8x32_ps(Floats::load(values).0, of_lane))
        }
    }

    #[inline(always)]
    fn sums([a, b, c, d]: [Self; 4]) -> [f32; 4] {
        let mut sums = [0.0; 4];
        // SAFETY: the processor has the instructions; an array of 16 bytes is written.
        unsafe {
            let both = _mm256_hadd_ps(_mm256_hadd_ps(a.0, b.0), _mm256_hadd_ps(c.0, d.0));
            let high = _mm256_extractf128_ps::<1>(both);
            _mm_storeu_ps(sums.as_mut_ptr(), _mm_add_ps(_mm256_castps256_ps128(both), high));
        }
        sums
    }

    #[inline(always)]
    fn dense<const KIND: u8>(bytes: &[u8]) -> Self {
        // SAFETY: the processor has the instructions.
        Floats(unsafe { dense::<KIND>(bytes) })
    }

    #[inline(always)]
    fn packed<const KIND: u8>(bytes: &[u8], scale: Self, bias: Self) -> [Self; 8] {
        // SAFETY: the processor has the instructions.
        unsafe { unpack::<KIND>(bytes, scale.0, bias.0) }
    }
}

/// The weights of a packed chunk: lane `i` has the eight neighbours from `8 i` on, one in each
/// step.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn unpack<const KIND: u8>(bytes: &[u8], scale: __m256, bias: __m256) -> [Floats; STEPS] {
    let mut values = [Floats::zero(); STEPS];
    let words = words::<KIND>(bytes);
    for (step, value) in values.iter_mut().enumerate() {
        let (word, first) = place(KIND, step);
        let codes = _mm256_srlv_epi32(words[word], _mm256_set1_epi32(first as i32));
        *value = Floats(match KIND {
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
        });
    }
    values
}

/// Eight dense weights.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dense<const KIND: u8>(bytes: &[u8]) -> __m256 {
    let bytes = &bytes[..bits(KIND)];
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

/// For each lane of a packed chunk the bits of its eight codes: their first four bytes and their
/// last four, or all where there are fewer.
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
        _ => {
            let words = codes::words::<KIND>(bytes);
            // SAFETY: both arrays have 32 bytes.
            words.map(|words| unsafe { _mm256_loadu_si256(words.as_ptr().cast()) })
        }
    }
}
