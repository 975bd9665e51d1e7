//! Vectors of AVX-512 without VBMI and BF16: weights become floats as with AVX2, and are multiplied
//! sixteen at a time.

use std::arch::x86_64::*;

use super::avx2;
use super::lanes::Lanes;
use super::sizes::{STEPS, W_TILE};

/// Made and used where the processor has these instructions alone: in kernels that are run at a
/// level that has them.
#[derive(Clone, Copy)]
pub(crate) struct Floats(avx2::Floats);

/// The sum of a chain: a half for each of its vectors of a chunk.
#[derive(Clone, Copy)]
pub(crate) struct Chain(__m512);

impl Lanes for Floats {
    type Chain = Chain;

    #[inline(always)]
    fn start() -> Chain {
        // SAFETY: the processor has the instructions.
        Chain(unsafe { _mm512_setzero_ps() })
    }

    #[inline(always)]
    fn add_products(sum: Chain, x: &[[f32; 8]; 2], [a, b]: [Self; 2]) -> Chain {
        // SAFETY: the processor has the instructions.
        unsafe {
            let w = _mm512_insertf32x8::<1>(_mm512_castps256_ps512(a.0.0), b.0.0);
            Chain(_mm512_fmadd_ps(load(x), w, sum.0))
        }
    }

    #[inline(always)]
    fn end(sum: Chain) -> Self {
        // SAFETY: the processor has the instructions.
        unsafe {
            let high = _mm512_extractf32x8_ps::<1>(sum.0);
            Floats(avx2::Floats(_mm256_add_ps(_mm512_castps512_ps256(sum.0), high)))
        }
    }

    #[inline(always)]
    fn dots<const M: usize>(x: [&[[f32; 8]]; M], w: [&[[f32; 8]]; W_TILE]) -> [[Self; W_TILE]; M] {
        let (x, w) = (x.map(|x| x.as_chunks::<2>().0), w.map(|w| w.as_chunks::<2>().0));
        let count = w[0].len();
        let (x, w) = (x.map(|x| &x[..count]), w.map(|w| &w[..count]));
        let mut dots = [[Self::start(); W_TILE]; M];
        for step in 0..count {
            // SAFETY: the processor has the instructions.
            unsafe {
                let mut vectors = [_mm512_setzero_ps(); M];
                for i in 0..M {
                    vectors[i] = load(&x[i][step]);
                }
                for j in 0..W_TILE {
                    let w = load(&w[j][step]);
                    for i in 0..M {
                        dots[i][j].0 = _mm512_fmadd_ps(vectors[i], w, dots[i][j].0);
                    }
                }
            }
        }
        let mut ends = [[Self::zero(); W_TILE]; M];
        for i in 0..M {
            for j in 0..W_TILE {
                ends[i][j] = Self::end(dots[i][j]);
            }
        }
        ends
    }

    #[inline(always)]
    fn zero() -> Self {
        Floats(avx2::Floats::zero())
    }

    #[inline(always)]
    fn load(from: &[f32; 8]) -> Self {
        Floats(avx2::Floats::load(from))
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; 8]) {
        self.0.store(to);
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Floats(self.0.add(other.0))
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, sum: Self) -> Self {
        Floats(self.0.mul_add(factor.0, sum.0))
    }

    #[inline(always)]
    fn choose(values: &[f32; 8], of_lane: &[u32; 8]) -> Self {
        Floats(avx2::Floats::choose(values, of_lane))
    }

    #[inline(always)]
    fn sums([a, b, c, d]: [Self; 4]) -> [f32; 4] {
        avx2::Floats::sums([a.0, b.0, c.0, d.0])
    }

    #[inline(always)]
    fn dense<const KIND: u8>(bytes: &[u8]) -> Self {
        Floats(avx2::Floats::dense::<KIND>(bytes))
    }

    #[inline(always)]
    fn packed<const KIND: u8>(bytes: &[u8], scale: Self, bias: Self) -> [Self; STEPS] {
        let values = avx2::Floats::packed::<KIND>(bytes, scale.0, bias.0);
        let mut floats = [Self::zero(); STEPS];
        for i in 0..STEPS {
            floats[i] = Floats(values[i]);
        }
        floats
    }
}

/// Sixteen floats.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(from: &[[f32; 8]; 2]) -> __m512 {
    // SAFETY: an array of 64 bytes is read.
    unsafe { _mm512_loadu_ps(from.as_ptr().cast()) }
}
