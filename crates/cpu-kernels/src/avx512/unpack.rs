//! From packed codes to exact bf16 values, 256 at a time.
//!
//! A chunk of 256 codes becomes eight vectors of 32 values. Codes stay near the lane that they
//! were loaded to, so their order is a permutation, which is applied to x once per product; what
//! matters is that a lane holds sixteen neighbours in all eight vectors together, so that it
//! belongs to one group whose scale can be applied to the lane's sum.

use std::arch::x86_64::*;

use crate::kind::{FP4, FP8, bits};
use crate::values::{e2m1, e4m3};

/// Codes in a chunk.
pub(super) const CHUNK: usize = 256;

/// The code that `unpack` puts in vector `at / 32`, place `at % 32`.
const fn order(bits: usize, at: usize) -> usize {
    let (vector, lane, half) = (at / 32, at % 32 / 2, at % 2);
    let (block, quarter) = (lane / 4, lane % 4);
    match bits {
        2 => 16 * lane + 8 * half + vector,
        4 => {
            let first = 128 * (quarter / 2) + 32 * block + 16 * (quarter % 2);
            first + 8 * (vector / 4) + 4 * half + vector % 4
        }
        _ => 64 * quarter + 16 * block + 4 * (vector / 2) + 2 * half + vector % 2,
    }
}

const fn orders(bits: usize) -> [u8; CHUNK] {
    let mut table = [0; CHUNK];
    let mut at = 0;
    while at < CHUNK {
        table[at] = order(bits, at) as u8;
        at += 1;
    }
    table
}

/// The order that `unpack` brings codes of `kind` in.
pub(super) fn order_of(kind: u8) -> &'static [u8; CHUNK] {
    static TWO: [u8; CHUNK] = orders(2);
    static FOUR: [u8; CHUNK] = orders(4);
    static OTHER: [u8; CHUNK] = orders(8);
    match bits(kind) {
        2 => &TWO,
        4 => &FOUR,
        _ => &OTHER,
    }
}

#[repr(C, align(64))]
struct Table<T>(T);

/// bf16 of a value that it holds exactly.
const fn bf16(value: f32) -> u16 {
    (value.to_bits() >> 16) as u16
}

/// The value of the code in the lowest bits of `word`: what is above them does not matter.
pub(super) const fn value(kind: u8, word: u8) -> f32 {
    let code = word & (255u8 >> (8 - bits(kind)));
    if kind == FP4 { e2m1(code) } else { code as f32 }
}

/// bf16 values by the lowest bits of a word: what is above the code repeats.
const fn words(kind: u8) -> Table<[u16; 64]> {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = bf16(value(kind, i as u8));
        i += 1;
    }
    Table(table)
}

/// One byte of the bf16 value of each code below 128.
const fn bytes(kind: u8, high: bool) -> Table<[u8; 128]> {
    let mut table = [0; 128];
    let mut i = 0;
    while i < 128 {
        let value = bf16(if kind == FP8 { e4m3(i as u8) } else { i as f32 });
        table[i] = if high { (value >> 8) as u8 } else { value as u8 };
        i += 1;
    }
    Table(table)
}

/// Shuffle indices that give the bytes of each eight codes a 64-bit word.
const fn spread_places(bits: usize) -> Table<[u8; 64]> {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = if i % 8 < bits { (i / 8 * bits + i % 8) as u8 } else { 0 };
        i += 1;
    }
    Table(table)
}

/// The first bit of each code of such a word.
const fn starts(bits: usize) -> Table<[u8; 64]> {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = (i % 8 * bits) as u8;
        i += 1;
    }
    Table(table)
}

struct Tables<const KIND: u8>;

impl<const KIND: u8> Tables<KIND> {
    const WORDS: &'static Table<[u16; 64]> = &words(KIND);
    const LOW: &'static Table<[u8; 128]> = &bytes(KIND, false);
    const HIGH: &'static Table<[u8; 128]> = &bytes(KIND, true);
    const SPREAD: &'static Table<[u8; 64]> = &spread_places(bits(KIND));
    const STARTS: &'static Table<[u8; 64]> = &starts(bits(KIND));
}

/// Bytes `from`..`from + 64`.
#[inline]
#[target_feature(enable = "avx512f")]
fn load<T: Copy, const N: usize>(from: usize, bytes: &[T; N]) -> __m512i {
    assert!(from + 64 <= size_of::<[T; N]>());
    // SAFETY: the 64 bytes lie inside the array; numbers of any width may be read as bytes.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast::<u8>().add(from).cast()) }
}

/// 32 values each, from the bytes of a chunk (of which there are 32 times the bits).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]
pub(super) fn unpack<const KIND: u8>(bytes: &[u8]) -> [__m512i; 8] {
    assert!(bytes.len() >= CHUNK / 8 * bits(KIND));
    let at = |from: usize| {
        assert!(from + 64 <= bytes.len());
        // SAFETY: the 64 bytes lie inside the slice.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().add(from).cast()) }
    };
    let words = load(0, &Tables::<KIND>::WORDS.0);
    match KIND {
        2 => {
            let codes = at(0);
            [
                _mm512_permutexvar_epi16(codes, words),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<2>(codes), words),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<4>(codes), words),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<6>(codes), words),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<8>(codes), words),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<10>(codes), words),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<12>(codes), words),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<14>(codes), words),
            ]
        }
        4 | FP4 => {
            let (a, b) = (_mm512_castsi512_ps(at(0)), _mm512_castsi512_ps(at(64)));
            // Neighbours among the 32-bit words go to the same lane.
            let even = _mm512_castps_si512(_mm512_shuffle_ps::<0x88>(a, b));
            let odd = _mm512_castps_si512(_mm512_shuffle_ps::<0xdd>(a, b));
            [
                _mm512_permutexvar_epi16(even, words),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<4>(even), words),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<8>(even), words),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<12>(even), words),
                _mm512_permutexvar_epi16(odd, words),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<4>(odd), words),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<8>(odd), words),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<12>(odd), words),
            ]
        }
        _ => {
            let mut quarters = [_mm512_setzero_si512(); 4];
            for (i, quarter) in quarters.iter_mut().enumerate() {
                *quarter = match KIND {
                    8 | FP8 => at(64 * i),
                    _ => spread_codes::<KIND>(bytes, i),
                };
            }
            let mut values = [_mm512_setzero_si512(); 8];
            for (i, codes) in transpose(quarters).into_iter().enumerate() {
                [values[2 * i], values[2 * i + 1]] = widen::<KIND>(codes);
            }
            values
        }
    }
}

/// Quarter `i` of a chunk's codes, each in a byte, whose bits above the code are undefined.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn spread_codes<const KIND: u8>(bytes: &[u8], i: usize) -> __m512i {
    let size = 8 * bits(KIND);
    assert!((i + 1) * size <= bytes.len());
    // SAFETY: the mask lets only these `size` bytes of the slice be read.
    spread::<KIND>(unsafe {
        _mm512_maskz_loadu_epi8(u64::MAX >> (64 - size), bytes.as_ptr().add(i * size).cast())
    })
}

/// 64 codes, each in a byte, whose bits above the code are undefined.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn spread<const KIND: u8>(packed: __m512i) -> __m512i {
    let words = _mm512_permutexvar_epi8(load(0, &Tables::<KIND>::SPREAD.0), packed);
    _mm512_multishift_epi64_epi8(load(0, &Tables::<KIND>::STARTS.0), words)
}

/// Four 32-bit words of each block of four vectors, exchanged with the vectors.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
    let (ab_high, cd_high) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(ab, cd),
        _mm512_unpackhi_epi64(ab, cd),
        _mm512_unpacklo_epi64(ab_high, cd_high),
        _mm512_unpackhi_epi64(ab_high, cd_high),
    ]
}

/// bf16 values by the lowest five bits of a word: what is above the code does not matter.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn word_table<const KIND: u8>() -> __m512i {
    load(0, &Tables::<KIND>::WORDS.0)
}

/// The values of the even and of the odd bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn widen<const KIND: u8>(codes: __m512i) -> [__m512i; 2] {
    match KIND {
        8 | FP8 => {
            let (tables_low, tables_high) = (&Tables::<KIND>::LOW.0, &Tables::<KIND>::HIGH.0);
            let look_up = |table| _mm512_permutex2var_epi8(load(0, table), codes, load(64, table));
            let (mut low, mut high) = (look_up(tables_low), look_up(tables_high));
            if KIND == FP8 {
                // The sign.
                high = _mm512_ternarylogic_epi32::<0xf8>(high, codes, _mm512_set1_epi8(-128));
            } else {
                // From 128 on the last seven bits are the mantissa.
                let large = _mm512_movepi8_mask(codes);
                let mantissa = _mm512_and_si512(codes, _mm512_set1_epi8(0x7f));
                low = _mm512_mask_mov_epi8(low, large, mantissa);
                high = _mm512_mask_mov_epi8(high, large, _mm512_set1_epi8(0x43));
            }
            // a | (b & c)
            [
                _mm512_ternarylogic_epi32::<0xf8>(
                    _mm512_slli_epi16::<8>(high),
                    low,
                    _mm512_set1_epi16(0xff),
                ),
                _mm512_ternarylogic_epi32::<0xf8>(
                    _mm512_srli_epi16::<8>(low),
                    high,
                    _mm512_set1_epi16(-256),
                ),
            ]
        }
        6 => {
            let table = &Tables::<KIND>::WORDS.0;
            let (first, second) = (load(0, table), load(64, table));
            [
                _mm512_permutex2var_epi16(first, codes, second),
                _mm512_permutex2var_epi16(first, _mm512_srli_epi16::<8>(codes), second),
            ]
        }
        _ => {
            let table = load(0, &Tables::<KIND>::WORDS.0);
            [
                _mm512_permutexvar_epi16(codes, table),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<8>(codes), table),
            ]
        }
    }
}
