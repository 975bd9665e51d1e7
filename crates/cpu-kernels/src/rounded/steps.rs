//! Steps with x as whole numbers of 16 bits, on AVX-512 with VBMI and VNNI.
//!
//! A number is two bytes, and bytes are multiplied: the upper ones, with their sign, by the codes,
//! and the lower ones likewise. An instruction takes 64 codes, where whole numbers of 16 bits take
//! 32, and codes need not become so wide. Sums of bytes are brought together until a lane has a
//! group, before they become floats. All of them are exact.

use std::arch::x86_64::*;
use std::ops::Range;

use super::lanes::{CHUNK, LANES, Line};
use super::x::{FP4_CODES, QUAD, X};
use crate::avx512::scales::{Groups, Scales};
use crate::avx512::sum_lanes;
use crate::kind::{FP4, bits};
use crate::output::Output;
use crate::prefetch::prefetch;

/// Rows of x that a row of weights in registers is multiplied with.
const FEW: usize = 4;

/// How many bytes ahead of the weights at hand memory is asked for more.
const AHEAD: usize = 4096;

/// A product of steps whose sizes were checked.
pub(super) struct Steps<'a> {
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) x: &'a X,
    pub(super) data: &'a [u8],
    /// Vectors of scales of four chunks: 1, or 2 of groups of 16.
    pub(super) parts: usize,
    /// For as many codes as a vector of scales is for.
    pub(super) groups: Groups<'a>,
    pub(super) out: &'a Output<'a>,
}

/// Rows of x, cut to the chunks of a row of weights.
struct Rows<'a, const M: usize> {
    /// Of each chunk the lower bytes, then the upper ones.
    bytes: [&'a [[Line; 4]]; M],
    scales: [&'a [[f32; LANES]]; M],
    sums: [&'a [[f32; LANES]]; M],
}

/// Returns true for codes whose bytes are as good with a sign as without.
pub(super) const fn takes(kind: u8) -> bool {
    bits(kind) < 8
}

impl Steps<'_> {
    /// Columns `columns` of all rows.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,fma,f16c")]
    pub(super) fn run<const KIND: u8>(&self, columns: Range<usize>) {
        for first in (0..self.m).step_by(FEW) {
            let columns = columns.clone();
            match (self.m - first, self.parts) {
                (1, 2) => self.few::<KIND, 1, 2>(first, columns),
                (2, 2) => self.few::<KIND, 2, 2>(first, columns),
                (3, 2) => self.few::<KIND, 3, 2>(first, columns),
                (_, 2) => self.few::<KIND, FEW, 2>(first, columns),
                (1, _) => self.few::<KIND, 1, 1>(first, columns),
                (2, _) => self.few::<KIND, 2, 1>(first, columns),
                (3, _) => self.few::<KIND, 3, 1>(first, columns),
                _ => self.few::<KIND, FEW, 1>(first, columns),
            }
        }
    }

    /// `P`: vectors of scales of four chunks.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,fma,f16c")]
    fn few<const KIND: u8, const M: usize, const P: usize>(
        &self,
        first: usize,
        columns: Range<usize>,
    ) {
        let chunks = self.k.div_ceil(CHUNK);
        let mut rows = Rows { bytes: [&[]; M], scales: [&[]; M], sums: [&[]; M] };
        for i in 0..M {
            let (bytes, rest) = self.x.row(first + i).as_chunks();
            assert!(rest.is_empty());
            rows.bytes[i] = &bytes[..chunks];
            rows.scales[i] = &self.x.of_lanes(first + i)[..chunks.div_ceil(QUAD) * P];
            rows.sums[i] = self.x.sums(first + i);
        }
        for column in columns.clone().step_by(4) {
            let count = 4.min(columns.end - column);
            let mut totals = [[_mm512_setzero_ps(); 4]; M];
            for j in 0..count {
                let of_row = self.column::<KIND, M, P>(&rows, column + j);
                for i in 0..M {
                    totals[i][j] = of_row[i];
                }
            }
            for i in 0..M {
                let mut results = [0.0; 4];
                // SAFETY: the array has four floats.
                unsafe { _mm_storeu_ps(results.as_mut_ptr(), sum_lanes(totals[i])) };
                // SAFETY: a unit of work has columns of its own, and is claimed by one thread.
                unsafe { self.out.store(first + i, column, &results[..count]) };
            }
        }
    }

    /// The lanes of the products of a row of weights with rows of x.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,fma,f16c")]
    fn column<const KIND: u8, const M: usize, const P: usize>(
        &self,
        x: &Rows<'_, M>,
        column: usize,
    ) -> [__m512; M] {
        let size = self.k / 8 * bits(KIND);
        let of_quad = QUAD * CHUNK / 8 * bits(KIND);
        let weights = &self.data[column * size..][..size];
        let mut totals = [_mm512_setzero_ps(); M];
        let mut scales = self.groups.scales(column);
        let whole = weights.chunks_exact(of_quad);
        let rest = whole.remainder();
        let count = whole.len();
        for (quad, bytes) in whole.enumerate() {
            for line in 0..of_quad / 64 {
                // Rows follow each other, so this runs ahead into the next ones.
                prefetch(bytes.as_ptr().wrapping_add(AHEAD + 64 * line));
            }
            let of_chunk = of_quad / QUAD;
            let mut codes = [[_mm512_setzero_si512(); 2]; QUAD];
            for i in 0..QUAD {
                codes[i] = codes_of::<KIND>(&bytes[i * of_chunk..][..of_chunk]);
            }
            self.quad::<M, P>(x, quad, &codes, &mut scales, &mut totals);
        }
        if !rest.is_empty() {
            let mut codes = [[_mm512_setzero_si512(); 2]; QUAD];
            let chunks = rest.chunks(of_quad / QUAD);
            let len = chunks.len();
            for (codes, bytes) in codes.iter_mut().zip(chunks) {
                *codes = codes_of::<KIND>(bytes);
            }
            self.quad::<M, P>(x, count, &codes[..len], &mut scales, &mut totals);
        }
        for part in 0..x.sums[0].len() {
            let bias = match KIND {
                FP4 => _mm512_mul_ps(self.groups.scale(column, part), _mm512_set1_ps(-12.0)),
                _ => self.groups.bias(column, part),
            };
            for i in 0..M {
                totals[i] = _mm512_fmadd_ps(bias, floats(&x.sums[i][part]), totals[i]);
            }
        }
        if KIND == FP4 {
            for total in &mut totals {
                // Codes are twice the values.
                *total = _mm512_mul_ps(*total, _mm512_set1_ps(0.5));
            }
        }
        totals
    }

    /// Adds the products of up to four chunks, whose first one is `QUAD * quad`, to `totals`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,fma,f16c")]
    fn quad<const M: usize, const P: usize>(
        &self,
        x: &Rows<'_, M>,
        quad: usize,
        codes: &[[__m512i; 2]],
        of_row: &mut Scales<'_>,
        totals: &mut [__m512; M],
    ) {
        let mut scales = [_mm512_setzero_ps(); P];
        for part in 0..P {
            if CHUNK * QUAD / P * (quad * P + part) < self.k {
                scales[part] = of_row.next(quad * P + part);
            }
        }
        for i in 0..M {
            let mut dots = [_mm512_setzero_si512(); QUAD];
            let chunks = x.bytes[i][QUAD * quad..].iter().zip(codes);
            for (at, ([a, b, c, d], &[first, second])) in chunks.enumerate() {
                let mut sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), first, line(c));
                sums = _mm512_dpbusd_epi32(sums, second, line(d));
                sums = _mm512_slli_epi32::<8>(sums);
                sums = _mm512_dpbusd_epi32(sums, line(a), first);
                dots[at] = _mm512_dpbusd_epi32(sums, line(b), second);
            }
            let (a, b) = (add_pairs(dots[0], dots[1]), add_pairs(dots[2], dots[3]));
            let dots = if P == 2 { [a, b] } else { [add_pairs(a, b); 2] };
            for part in 0..P {
                let scale = _mm512_mul_ps(scales[part], floats(&x.scales[i][quad * P + part]));
                totals[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[part]), scale, totals[i]);
            }
        }
    }
}

/// The sums of neighbouring lanes; in each quarter those of `a`, then those of `b`.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_pairs(a: __m512i, b: __m512i) -> __m512i {
    let (a, b) = (_mm512_castsi512_ps(a), _mm512_castsi512_ps(b));
    _mm512_add_epi32(
        _mm512_castps_si512(_mm512_shuffle_ps::<0x88>(a, b)),
        _mm512_castps_si512(_mm512_shuffle_ps::<0xdd>(a, b)),
    )
}

#[inline]
#[target_feature(enable = "avx512f")]
fn line(line: &Line) -> __m512i {
    // SAFETY: a line is 64 bytes that begin at a multiple of 64.
    unsafe { _mm512_load_si512(line.0.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn floats(from: &[f32; LANES]) -> __m512 {
    // SAFETY: the array has 64 bytes.
    unsafe { _mm512_loadu_ps(from.as_ptr()) }
}

/// A chunk of codes, each in a byte: a lane has eight neighbours, four in each vector. Codes that
/// a row's end leaves out are 0.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
fn codes_of<const KIND: u8>(bytes: &[u8]) -> [__m512i; 2] {
    let (len, size) = (bytes.len(), CHUNK / 8 * bits(KIND));
    assert!(0 < len && len <= size);
    // SAFETY: by the assertion, what the masks let be read lies inside the slice, and the arrays
    // have 64 and 16 bytes.
    unsafe {
        let load = |from: usize| {
            let count = len.saturating_sub(from).min(64);
            let mask = if count == 0 { 0 } else { u64::MAX >> (64 - count) };
            _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().add(from).cast())
        };
        let first = load(0);
        if bits(KIND) == 4 {
            let mask = _mm512_set1_epi8(15);
            let low = _mm512_and_si512(first, mask);
            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(first), mask);
            if KIND != FP4 {
                return [low, high];
            }
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(FP4_CODES.as_ptr().cast()));
            return [_mm512_shuffle_epi8(table, low), _mm512_shuffle_epi8(table, high)];
        }
        let [places, offsets] = const { &places_and_offsets(bits(KIND)) };
        let mut codes = [first; 2];
        for half in 0..2 {
            let places = _mm512_loadu_si512(places[half].as_ptr().cast());
            let offsets = _mm512_loadu_si512(offsets[half].as_ptr().cast());
            let words = match size {
                ..=64 => _mm512_permutexvar_epi8(places, first),
                _ => _mm512_permutex2var_epi8(first, places, load(64)),
            };
            let apart = _mm512_multishift_epi64_epi8(offsets, words);
            codes[half] = _mm512_and_si512(apart, _mm512_set1_epi8((1 << bits(KIND)) - 1));
        }
        codes
    }
}

/// Of the first four codes of each lane and of the other four: the bytes that have them, and the
/// first bit of each code among those of two lanes.
const fn places_and_offsets(bits: usize) -> [[[u8; 64]; 2]; 2] {
    let mut all = [[[0; 64]; 2]; 2];
    let mut i = 0;
    while i < 128 {
        let (half, byte) = (i / 64, i % 64);
        let first = 4 * bits * half;
        let place = byte / 4 * bits + first / 8 + byte % 4;
        // No code needs the bytes after the end.
        all[0][half][byte] = if place < 16 * bits { place as u8 } else { 0 };
        all[1][half][byte] = (byte / 4 % 2 * 32 + first % 8 + byte % 4 * bits) as u8;
        i += 1;
    }
    all
}
