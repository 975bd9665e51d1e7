//! Vectors of AVX2, two for sixteen lanes; with AVX-VNNI or without.

use std::arch::x86_64::*;

use super::lanes::{CHUNK, LANES, Lanes, Line, is_spread, lower, places};
use super::x::FP4_CODES;
use crate::kind::{FP4, bits};

/// Used where the processor has the instructions; `VNNI`: those of AVX-VNNI too.
pub(super) struct Avx2<const X: usize, const VNNI: bool>;

impl<const X: usize, const VNNI: bool> Avx2<X, VNNI> {
    /// Returns true when the sums of a run have 16 bits.
    const fn is_short(kind: u8) -> bool {
        X == 1 && !VNNI && bits(kind) == 4
    }

    /// The even and the odd bytes.
    #[inline(always)]
    fn wide([a, b]: [__m256i; 2]) -> [[__m256i; 2]; 2] {
        // SAFETY: the processor has the instructions.
        unsafe {
            let mask = _mm256_set1_epi16(255);
            let even = [_mm256_and_si256(a, mask), _mm256_and_si256(b, mask)];
            [even, [_mm256_srli_epi16::<8>(a), _mm256_srli_epi16::<8>(b)]]
        }
    }
}

impl<const X: usize, const VNNI: bool> Lanes for Avx2<X, VNNI> {
    type Bytes = [__m256i; 2];
    type Sums = [__m256i; 2];
    type Floats = [__m256; 2];

    const X: usize = X;
    // Two products of unsigned codes of 8 bits would not fit in 16 bits.
    const OFFSET: f32 = if X == 2 || VNNI { 0.0 } else { 128.0 };
    const IS_WIDE: bool = false;

    #[inline(always)]
    fn load(from: &[u8; 64]) -> [__m256i; 2] {
        // SAFETY: the processor has the instructions; an array of 64 bytes is read.
        unsafe {
            let first = from.as_ptr();
            [_mm256_loadu_si256(first.cast()), _mm256_loadu_si256(first.add(32).cast())]
        }
    }

    #[inline(always)]
    fn store([a, b]: [__m256i; 2], to: &mut Line) {
        let first = to.0.as_mut_ptr();
        // SAFETY: the processor has the instructions; an aligned array of 64 bytes is written.
        unsafe {
            _mm256_store_si256(first.cast(), a);
            _mm256_store_si256(first.add(32).cast(), b);
        }
    }

    #[inline(always)]
    fn word(four: i32) -> [__m256i; 2] {
        // SAFETY: the processor has the instructions.
        unsafe { [_mm256_set1_epi32(four); 2] }
    }

    #[inline(always)]
    fn spread<const KIND: u8>(bytes: &[u8]) -> [__m256i; 2] {
        let size = 8 * bits(KIND);
        assert!(bytes.len() >= size);
        let (starts, places) = const { starts_and_places(bits(KIND)) };
        let mut codes = [Self::no_sums()[0]; 2];
        for half in 0..2 {
            // SAFETY: the processor has the instructions; sixteen bytes from each start on are
            // inside the slice, and the arrays have 16 bytes.
            codes[half] = unsafe {
                let load = |at: usize| _mm_loadu_si128(bytes.as_ptr().add(starts[at]).cast());
                let place = |at: usize| _mm_loadu_si128(places[at].as_ptr().cast());
                let packed = _mm256_set_m128i(load(2 * half + 1), load(2 * half));
                let places = _mm256_set_m128i(place(2 * half + 1), place(2 * half));
                let fours = _mm256_shuffle_epi8(packed, places);
                let fours = match bits(KIND) % 2 {
                    0 => fours,
                    _ => _mm256_srlv_epi32(fours, _mm256_set1_epi64x(4 << 32)),
                };
                let (pair, code) = (2 * bits(KIND), bits(KIND));
                let mask = _mm256_set1_epi32(lower(pair, 16));
                let high = _mm256_sll_epi32(fours, _mm_cvtsi32_si128(16 - pair as i32));
                let pairs = _mm256_or_si256(
                    _mm256_and_si256(fours, mask),
                    _mm256_and_si256(high, _mm256_slli_epi32::<16>(mask)),
                );
                let mask = _mm256_set1_epi32(lower(code, 8));
                let high = _mm256_sll_epi32(pairs, _mm_cvtsi32_si128(8 - code as i32));
                _mm256_or_si256(
                    _mm256_and_si256(pairs, mask),
                    _mm256_and_si256(high, _mm256_slli_epi32::<8>(mask)),
                )
            };
        }
        codes
    }

    #[inline(always)]
    fn chunk<const KIND: u8>(bytes: &[u8]) -> [[__m256i; 2]; 4] {
        let bytes = &bytes[..CHUNK / 8 * bits(KIND)];
        if bits(KIND) == 4 {
            return Self::codes::<KIND>(Self::load(&bytes.as_chunks::<64>().0[0]));
        }
        let [mut even, mut odd] = Self::halves::<KIND>(bytes);
        for i in 0..2 {
            // SAFETY: the processor has the instructions.
            unsafe {
                let (a, b) = (_mm256_castsi256_ps(even[i]), _mm256_castsi256_ps(odd[i]));
                even[i] = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(a, b));
                odd[i] = _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(a, b));
            }
        }
        let ([a, c, ..], [b, d, ..]) = (Self::codes::<KIND>(even), Self::codes::<KIND>(odd));
        if X == 1 { [a, b, a, b] } else { [a, c, b, d] }
    }

    #[inline(always)]
    fn codes<const KIND: u8>([a, b]: [__m256i; 2]) -> [[__m256i; 2]; 4] {
        // SAFETY: the processor has the instructions; the table has 16 bytes.
        unsafe {
            if bits(KIND) != 4 {
                if X == 2 {
                    let [a, b] = Self::wide([a, b]);
                    return [a, b, a, b];
                }
                if VNNI || is_spread(KIND) {
                    return [[a, b]; 4];
                }
                let sign = _mm256_set1_epi8(-128);
                return [[_mm256_xor_si256(a, sign), _mm256_xor_si256(b, sign)]; 4];
            }
            if X == 2 && KIND != FP4 {
                let mask = _mm256_set1_epi16(15);
                return [
                    [_mm256_and_si256(a, mask), _mm256_and_si256(b, mask)],
                    [
                        _mm256_and_si256(_mm256_srli_epi16::<4>(a), mask),
                        _mm256_and_si256(_mm256_srli_epi16::<4>(b), mask),
                    ],
                    [
                        _mm256_and_si256(_mm256_srli_epi16::<8>(a), mask),
                        _mm256_and_si256(_mm256_srli_epi16::<8>(b), mask),
                    ],
                    [_mm256_srli_epi16::<12>(a), _mm256_srli_epi16::<12>(b)],
                ];
            }
            let mask = _mm256_set1_epi8(15);
            let low = [_mm256_and_si256(a, mask), _mm256_and_si256(b, mask)];
            let (a, b) = (_mm256_srli_epi16::<4>(a), _mm256_srli_epi16::<4>(b));
            let high = [_mm256_and_si256(a, mask), _mm256_and_si256(b, mask)];
            if KIND != FP4 {
                return [low, high, low, high];
            }
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(FP4_CODES.as_ptr().cast()));
            let ([a, b], [c, d]) = (low, high);
            let low = [_mm256_shuffle_epi8(table, a), _mm256_shuffle_epi8(table, b)];
            let high = [_mm256_shuffle_epi8(table, c), _mm256_shuffle_epi8(table, d)];
            if X == 1 {
                return [low, high, low, high];
            }
            let ([a, c], [b, d]) = (Self::wide(low), Self::wide(high));
            [a, b, c, d]
        }
    }

    #[inline(always)]
    fn transpose(rows: [[__m256i; 2]; LANES]) -> [[__m256i; 2]; LANES] {
        let mut columns = rows;
        for half in 0..2 {
            for from in 0..2 {
                let mut eight = [rows[0][0]; 8];
                for i in 0..8 {
                    eight[i] = rows[8 * half + i][from];
                }
                // SAFETY: the processor has the instructions.
                let eight = unsafe { transpose(eight) };
                for i in 0..8 {
                    columns[8 * from + i][half] = eight[i];
                }
            }
        }
        columns
    }

    #[inline(always)]
    fn no_sums() -> [__m256i; 2] {
        // SAFETY: the processor has the instructions.
        unsafe { [_mm256_setzero_si256(); 2] }
    }

    #[inline(always)]
    fn begin<const KIND: u8>(sums: [__m256i; 2]) -> [__m256i; 2] {
        if Self::is_short(KIND) { Self::no_sums() } else { sums }
    }

    #[inline(always)]
    fn dot<const KIND: u8>(
        mut run: [__m256i; 2],
        codes: [__m256i; 2],
        x: [__m256i; 2],
    ) -> [__m256i; 2] {
        for i in 0..2 {
            // SAFETY: the processor has the instructions.
            run[i] = unsafe {
                if X == 2 && VNNI {
                    _mm256_dpwssd_avx_epi32(run[i], codes[i], x[i])
                } else if X == 2 {
                    _mm256_add_epi32(run[i], _mm256_madd_epi16(codes[i], x[i]))
                } else if VNNI {
                    _mm256_dpbusd_avx_epi32(run[i], codes[i], x[i])
                } else if Self::is_short(KIND) {
                    _mm256_add_epi16(run[i], _mm256_maddubs_epi16(codes[i], x[i]))
                } else if is_spread(KIND) {
                    // Two products with codes of 6 bits fit in 16 bits.
                    let pairs = _mm256_maddubs_epi16(codes[i], x[i]);
                    _mm256_add_epi32(run[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
                } else {
                    let signed = _mm256_sign_epi8(x[i], codes[i]);
                    let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes[i]), signed);
                    _mm256_add_epi32(run[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
                }
            };
        }
        run
    }

    #[inline(always)]
    fn end<const KIND: u8>(mut sums: [__m256i; 2], run: [__m256i; 2]) -> [__m256i; 2] {
        if !Self::is_short(KIND) {
            return run;
        }
        for i in 0..2 {
            // SAFETY: the processor has the instructions.
            sums[i] = unsafe {
                _mm256_add_epi32(sums[i], _mm256_madd_epi16(run[i], _mm256_set1_epi16(1)))
            };
        }
        sums
    }

    #[inline(always)]
    fn floats(from: &[f32; LANES]) -> [__m256; 2] {
        // SAFETY: the processor has the instructions; an array of 64 bytes is read.
        unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] }
    }

    #[inline(always)]
    fn put([a, b]: [__m256; 2], to: &mut [f32; LANES]) {
        // SAFETY: the processor has the instructions; an array of 64 bytes is written.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), a);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), b);
        }
    }

    #[inline(always)]
    fn splat(value: f32) -> [__m256; 2] {
        // SAFETY: the processor has the instructions.
        unsafe { [_mm256_set1_ps(value); 2] }
    }

    #[inline(always)]
    fn choose(values: &[f32; LANES], of_lane: &[u32; LANES]) -> [__m256; 2] {
        let [values, _] = Self::floats(values);
        // SAFETY: the processor has the instructions; an array of 64 bytes is read.
        unsafe {
            let first = of_lane.as_ptr();
            let (a, b) =
                (_mm256_loadu_si256(first.cast()), _mm256_loadu_si256(first.add(8).cast()));
            [_mm256_permutevar8x32_ps(values, a), _mm256_permutevar8x32_ps(values, b)]
        }
    }

    #[inline(always)]
    fn mul([a, b]: [__m256; 2], [c, d]: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: the processor has the instructions.
        unsafe { [_mm256_mul_ps(a, c), _mm256_mul_ps(b, d)] }
    }

    #[inline(always)]
    fn mul_add([a, b]: [__m256; 2], [c, d]: [__m256; 2], [e, f]: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: the processor has the instructions.
        unsafe { [_mm256_fmadd_ps(a, c, e), _mm256_fmadd_ps(b, d, f)] }
    }

    #[inline(always)]
    fn as_floats([a, b]: [__m256i; 2]) -> [__m256; 2] {
        // SAFETY: the processor has the instructions.
        unsafe { [_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b)] }
    }

    #[inline(always)]
    fn total([a, b]: [__m256; 2]) -> f32 {
        // SAFETY: the processor has the instructions.
        unsafe {
            let sums = _mm256_add_ps(a, b);
            let four = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
}

/// Word `j` of vector `i` becomes word `i` of vector `j`.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(rows: [__m256i; 8]) -> [__m256i; 8] {
    let mut pairs = rows;
    for i in 0..4 {
        pairs[2 * i] = _mm256_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm256_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    let mut fours = pairs;
    for i in 0..2 {
        let [a, b, c, d] = [pairs[4 * i], pairs[4 * i + 1], pairs[4 * i + 2], pairs[4 * i + 3]];
        fours[4 * i] = _mm256_unpacklo_epi64(a, c);
        fours[4 * i + 1] = _mm256_unpackhi_epi64(a, c);
        fours[4 * i + 2] = _mm256_unpacklo_epi64(b, d);
        fours[4 * i + 3] = _mm256_unpackhi_epi64(b, d);
    }
    let mut columns = rows;
    for j in 0..4 {
        columns[j] = _mm256_permute2x128_si256::<0x20>(fours[j], fours[4 + j]);
        columns[4 + j] = _mm256_permute2x128_si256::<0x31>(fours[j], fours[4 + j]);
    }
    columns
}

/// For each sixteen of 64 packed codes, where 16 bytes begin in which they are, and where in these
/// the bytes of four codes are.
const fn starts_and_places(bits: usize) -> ([usize; 4], [[u8; 16]; 4]) {
    let (mut starts, mut all) = ([0; 4], [[0; 16]; 4]);
    let mut i = 0;
    while i < 4 {
        let (first, last) = (2 * bits * i, 8 * bits - 16);
        starts[i] = if first < last { first } else { last };
        all[i] = places(bits, first - starts[i]);
        i += 1;
    }
    (starts, all)
}
