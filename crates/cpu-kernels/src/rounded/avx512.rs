//! Vectors of AVX-512; with VNNI or without.

use std::arch::x86_64::*;

use super::lanes::{CHUNK, LANES, Lanes, Line, lower, places};
use super::x::FP4_CODES;
use crate::kind::{FP4, bits};

/// Used where the processor has the instructions; `VNNI`: those of VNNI too, which `X` of one byte
/// needs.
pub(super) struct Avx512<const X: usize, const VNNI: bool>;

impl<const X: usize, const VNNI: bool> Avx512<X, VNNI> {
    /// The even and the odd bytes.
    #[inline(always)]
    fn wide(bytes: __m512i) -> [__m512i; 2] {
        // SAFETY: the processor has the instructions.
        unsafe {
            let even = _mm512_and_si512(bytes, _mm512_set1_epi16(255));
            [even, _mm512_srli_epi16::<8>(bytes)]
        }
    }
}

impl<const X: usize, const VNNI: bool> Lanes for Avx512<X, VNNI> {
    type Bytes = __m512i;
    type Sums = __m512i;
    type Floats = __m512;

    const X: usize = X;
    const OFFSET: f32 = 0.0;
    const IS_WIDE: bool = true;

    #[inline(always)]
    fn load(from: &[u8; 64]) -> __m512i {
        // SAFETY: the processor has the instructions; an array of 64 bytes is read.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(bytes: __m512i, to: &mut Line) {
        // SAFETY: the processor has the instructions; an aligned array of 64 bytes is written.
        unsafe { _mm512_store_si512(to.0.as_mut_ptr().cast(), bytes) }
    }

    #[inline(always)]
    fn word(four: i32) -> __m512i {
        // SAFETY: the processor has the instructions.
        unsafe { _mm512_set1_epi32(four) }
    }

    #[inline(always)]
    fn spread<const KIND: u8>(bytes: &[u8]) -> __m512i {
        assert!(bytes.len() >= 8 * bits(KIND));
        let words = &const { words_of_lanes(bits(KIND)) };
        let places = &const { places_of_lanes(bits(KIND)) };
        // SAFETY: the processor has the instructions; the mask lets only bytes of the slice be
        // read, and the arrays have 64 bytes.
        unsafe {
            let packed =
                _mm512_maskz_loadu_epi8(u64::MAX >> (64 - 8 * bits(KIND)), bytes.as_ptr().cast());
            // Each quarter gets the words in which its sixteen codes are, then each word four
            // codes.
            let words = _mm512_loadu_si512(words.as_ptr().cast());
            let places = _mm512_loadu_si512(places.as_ptr().cast());
            let fours = _mm512_shuffle_epi8(_mm512_permutexvar_epi32(words, packed), places);
            let fours = match bits(KIND) % 2 {
                0 => fours,
                _ => _mm512_srlv_epi32(fours, _mm512_set1_epi64(4 << 32)),
            };
            let (pair, code) = (2 * bits(KIND), bits(KIND));
            let mask = _mm512_set1_epi32(lower(pair, 16));
            let high = _mm512_sll_epi32(fours, _mm_cvtsi32_si128(16 - pair as i32));
            let pairs = _mm512_or_si512(
                _mm512_and_si512(fours, mask),
                _mm512_and_si512(high, _mm512_slli_epi32::<16>(mask)),
            );
            let mask = _mm512_set1_epi32(lower(code, 8));
            let high = _mm512_sll_epi32(pairs, _mm_cvtsi32_si128(8 - code as i32));
            _mm512_or_si512(
                _mm512_and_si512(pairs, mask),
                _mm512_and_si512(high, _mm512_slli_epi32::<8>(mask)),
            )
        }
    }

    #[inline(always)]
    fn chunk<const KIND: u8>(bytes: &[u8]) -> [__m512i; 4] {
        let bytes = &bytes[..CHUNK / 8 * bits(KIND)];
        if bits(KIND) == 4 {
            return Self::codes::<KIND>(Self::load(&bytes.as_chunks::<64>().0[0]));
        }
        let [a, b] = Self::halves::<KIND>(bytes);
        // SAFETY: the processor has the instructions.
        let (a, b) = unsafe {
            let (a, b) = (_mm512_castsi512_ps(a), _mm512_castsi512_ps(b));
            let (even, odd) = (_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b));
            (_mm512_castps_si512(even), _mm512_castps_si512(odd))
        };
        if X == 1 {
            return [a, b, a, b];
        }
        let ([a, c, ..], [b, d, ..]) = (Self::codes::<KIND>(a), Self::codes::<KIND>(b));
        [a, c, b, d]
    }

    #[inline(always)]
    fn codes<const KIND: u8>(words: __m512i) -> [__m512i; 4] {
        if bits(KIND) != 4 && X == 1 {
            return [words; 4];
        }
        // SAFETY: the processor has the instructions; the table has 16 bytes.
        unsafe {
            if bits(KIND) != 4 {
                let [a, b] = Self::wide(words);
                return [a, b, a, b];
            }
            if X == 2 && KIND != FP4 {
                let mask = _mm512_set1_epi16(15);
                return [
                    _mm512_and_si512(words, mask),
                    _mm512_and_si512(_mm512_srli_epi16::<4>(words), mask),
                    _mm512_and_si512(_mm512_srli_epi16::<8>(words), mask),
                    _mm512_srli_epi16::<12>(words),
                ];
            }
            let mask = _mm512_set1_epi8(15);
            let low = _mm512_and_si512(words, mask);
            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(words), mask);
            if KIND != FP4 {
                return [low, high, low, high];
            }
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(FP4_CODES.as_ptr().cast()));
            let (low, high) = (_mm512_shuffle_epi8(table, low), _mm512_shuffle_epi8(table, high));
            if X == 1 {
                return [low, high, low, high];
            }
            let ([a, c], [b, d]) = (Self::wide(low), Self::wide(high));
            [a, b, c, d]
        }
    }

    #[inline(always)]
    fn transpose(rows: [__m512i; LANES]) -> [__m512i; LANES] {
        // SAFETY: the processor has the instructions.
        unsafe { crate::avx512::transpose(rows) }
    }

    #[inline(always)]
    fn no_sums() -> __m512i {
        // SAFETY: the processor has the instructions.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn begin<const KIND: u8>(sums: __m512i) -> __m512i {
        sums
    }

    #[inline(always)]
    fn end<const KIND: u8>(_: __m512i, run: __m512i) -> __m512i {
        run
    }

    #[inline(always)]
    fn dot<const KIND: u8>(sums: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        // SAFETY: the processor has the instructions.
        unsafe {
            match X {
                1 => _mm512_dpbusd_epi32(sums, codes, x),
                _ if VNNI => _mm512_dpwssd_epi32(sums, codes, x),
                _ => _mm512_add_epi32(sums, _mm512_madd_epi16(codes, x)),
            }
        }
    }

    #[inline(always)]
    fn floats(from: &[f32; LANES]) -> __m512 {
        // SAFETY: the processor has the instructions; an array of 64 bytes is read.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn put(floats: __m512, to: &mut [f32; LANES]) {
        // SAFETY: the processor has the instructions; an array of 64 bytes is written.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), floats) }
    }

    #[inline(always)]
    fn splat(value: f32) -> __m512 {
        // SAFETY: the processor has the instructions.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn choose(values: &[f32; LANES], of_lane: &[u32; LANES]) -> __m512 {
        // SAFETY: the processor has the instructions; an array of 64 bytes is read.
        unsafe {
            let of_lane = _mm512_loadu_si512(of_lane.as_ptr().cast());
            _mm512_permutexvar_ps(of_lane, Self::floats(values))
        }
    }

    #[inline(always)]
    fn mul(a: __m512, b: __m512) -> __m512 {
        // SAFETY: the processor has the instructions.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(a: __m512, b: __m512, sum: __m512) -> __m512 {
        // SAFETY: the processor has the instructions.
        unsafe { _mm512_fmadd_ps(a, b, sum) }
    }

    #[inline(always)]
    fn as_floats(sums: __m512i) -> __m512 {
        // SAFETY: the processor has the instructions.
        unsafe { _mm512_cvtepi32_ps(sums) }
    }

    #[inline(always)]
    fn total(floats: __m512) -> f32 {
        // SAFETY: the processor has the instructions.
        unsafe { _mm512_reduce_add_ps(floats) }
    }
}

/// The words of 64 packed codes that each quarter of a vector has: those in which its sixteen codes
/// are, and what follows.
const fn words_of_lanes(bits: usize) -> [u32; 16] {
    let mut words = [0; 16];
    let mut i = 0;
    while i < 16 {
        words[i] = ((bits * (i / 4) / 2 + i % 4) % 16) as u32;
        i += 1;
    }
    words
}

/// For each quarter, the byte indices of its codes, as by [`places`].
const fn places_of_lanes(bits: usize) -> [[u8; 16]; 4] {
    let mut all = [[0; 16]; 4];
    let mut i = 0;
    while i < 4 {
        all[i] = places(bits, bits * i % 2 * 2);
        i += 1;
    }
    all
}
