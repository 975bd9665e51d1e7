//! Vectors in memory, and what becomes of them at the end of a sum.

use std::arch::x86_64::*;

/// A vector at rest: 16 floats, or 16 pairs of bf16.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u32; 16]);

impl Line {
    pub(super) const ZERO: Line = Line([0; 16]);

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn pairs(&self) -> __m512bh {
        // SAFETY: a line is 64 bytes that begin at a multiple of 64, and both types are plain bits.
        unsafe { std::mem::transmute(_mm512_load_si512(self.0.as_ptr().cast())) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn floats(&self) -> __m512 {
        // SAFETY: a line is 64 bytes that begin at a multiple of 64.
        unsafe { _mm512_load_ps(self.0.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn set(&mut self, value: __m512i) {
        // SAFETY: a line is 64 bytes that begin at a multiple of 64.
        unsafe { _mm512_store_si512(self.0.as_mut_ptr().cast(), value) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn set_floats(&mut self, value: __m512) {
        self.set(_mm512_castps_si512(value));
    }
}

/// The sums of the lanes of four vectors, in an order that is the same for each.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
pub(crate) fn sum_lanes([a, b, c, d]: [__m512; 4]) -> __m128 {
    let ab = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b));
    let cd = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(c, d), _mm512_shuffle_f32x4::<0xee>(c, d));
    let (even, odd) = (_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xdd>(ab, cd));
    // A quarter of the register for each of a, b, c, d.
    let quarters = _mm512_add_ps(even, odd);
    let halves = _mm512_add_ps(quarters, _mm512_permute_ps::<0b01_00_11_10>(quarters));
    let sums = _mm512_add_ps(halves, _mm512_permute_ps::<0b10_11_00_01>(halves));
    let first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm512_castps512_ps128(_mm512_permutexvar_ps(first, sums))
}
