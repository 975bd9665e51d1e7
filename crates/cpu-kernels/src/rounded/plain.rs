//! Vectors that the compiler makes of loops over arrays.

use super::lanes::{CHUNK, LANES, Lanes, Line};
use super::x::FP4_CODES;
use crate::functions::add_product;
use crate::kind::{FP4, bits};

/// `FMA` is whether the processor multiplies and adds in one instruction.
pub(super) struct Plain<const X: usize, const FMA: bool>;

impl<const X: usize, const FMA: bool> Lanes for Plain<X, FMA> {
    type Bytes = [u8; 64];
    type Sums = [i32; LANES];
    type Floats = [f32; LANES];

    const X: usize = X;
    const OFFSET: f32 = 0.0;
    const IS_WIDE: bool = false;

    #[inline(always)]
    fn load(from: &[u8; 64]) -> [u8; 64] {
        *from
    }

    #[inline(always)]
    fn store(bytes: [u8; 64], to: &mut Line) {
        to.0 = bytes;
    }

    #[inline(always)]
    fn word(four: i32) -> [u8; 64] {
        let four = four.to_ne_bytes();
        std::array::from_fn(|i| four[i % 4])
    }

    #[inline(always)]
    fn spread<const KIND: u8>(bytes: &[u8]) -> [u8; 64] {
        let mut codes = [0; 64];
        for (of, eight) in bytes[..8 * bits(KIND)].chunks_exact(bits(KIND)).enumerate() {
            let mut word = [0; 8];
            word[..bits(KIND)].copy_from_slice(eight);
            let word = u64::from_le_bytes(word);
            for i in 0..8 {
                codes[8 * of + i] = (word >> (i * bits(KIND))) as u8 & (255 >> (8 - bits(KIND)));
            }
        }
        codes
    }

    #[inline(always)]
    fn chunk<const KIND: u8>(bytes: &[u8]) -> [[u8; 64]; 4] {
        let bytes = &bytes[..CHUNK / 8 * bits(KIND)];
        if bits(KIND) == 4 {
            return Self::codes::<KIND>(Self::load(&bytes.as_chunks::<64>().0[0]));
        }
        let lines = Self::halves::<KIND>(bytes);
        let code =
            |i: usize, odd: usize| lines[i / 8 % 2][i / 16 * 16 + i / 4 % 2 * 8 + odd * 4 + i % 4];
        let (a, b) = (std::array::from_fn(|i| code(i, 0)), std::array::from_fn(|i| code(i, 1)));
        if X == 1 {
            return [a, b, a, b];
        }
        let ([a, c, ..], [b, d, ..]) = (Self::codes::<KIND>(a), Self::codes::<KIND>(b));
        [a, c, b, d]
    }

    #[inline(always)]
    fn codes<const KIND: u8>(words: [u8; 64]) -> [[u8; 64]; 4] {
        let [low, high] = match KIND {
            kind if bits(kind) != 4 => [words; 2],
            FP4 => [
                words.map(|b| FP4_CODES[usize::from(b & 15)]),
                words.map(|b| FP4_CODES[usize::from(b >> 4)]),
            ],
            _ => [words.map(|byte| byte & 15), words.map(|byte| byte >> 4)],
        };
        if X == 1 {
            return [low, high, low, high];
        }
        let wide = |codes: [u8; 64], odd: usize| {
            std::array::from_fn(|i| if i % 2 == 0 { codes[i + odd] } else { 0 })
        };
        match bits(KIND) {
            4 => [wide(low, 0), wide(high, 0), wide(low, 1), wide(high, 1)],
            _ => [wide(words, 0), wide(words, 1), wide(words, 0), wide(words, 1)],
        }
    }

    #[inline(always)]
    fn transpose(rows: [[u8; 64]; LANES]) -> [[u8; 64]; LANES] {
        std::array::from_fn(|j| std::array::from_fn(|i| rows[i / 4][4 * j + i % 4]))
    }

    #[inline(always)]
    fn no_sums() -> [i32; LANES] {
        [0; LANES]
    }

    #[inline(always)]
    fn begin<const KIND: u8>(sums: [i32; LANES]) -> [i32; LANES] {
        sums
    }

    #[inline(always)]
    fn end<const KIND: u8>(_: [i32; LANES], run: [i32; LANES]) -> [i32; LANES] {
        run
    }

    #[inline(always)]
    fn dot<const KIND: u8>(mut sums: [i32; LANES], codes: [u8; 64], x: [u8; 64]) -> [i32; LANES] {
        if X == 2 {
            let word = |of: &[u8; 64], i: usize| i16::from_le_bytes([of[2 * i], of[2 * i + 1]]);
            for (i, sum) in sums.iter_mut().enumerate() {
                let product = |i| i32::from(word(&codes, i)) * i32::from(word(&x, i));
                *sum += product(2 * i) + product(2 * i + 1);
            }
            return sums;
        }
        for (i, sum) in sums.iter_mut().enumerate() {
            for at in 4 * i..4 * i + 4 {
                // A product of a code and a rounded value fits in 16 bits.
                *sum += i32::from(i16::from(codes[at]) * i16::from(x[at] as i8));
            }
        }
        sums
    }

    #[inline(always)]
    fn floats(from: &[f32; LANES]) -> [f32; LANES] {
        *from
    }

    #[inline(always)]
    fn put(floats: [f32; LANES], to: &mut [f32; LANES]) {
        *to = floats;
    }

    #[inline(always)]
    fn splat(value: f32) -> [f32; LANES] {
        [value; LANES]
    }

    #[inline(always)]
    fn choose(values: &[f32; LANES], of_lane: &[u32; LANES]) -> [f32; LANES] {
        of_lane.map(|of_lane| values[of_lane as usize % 8])
    }

    #[inline(always)]
    fn mul(mut a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        for i in 0..LANES {
            a[i] *= b[i];
        }
        a
    }

    #[inline(always)]
    fn mul_add(a: [f32; LANES], b: [f32; LANES], mut sum: [f32; LANES]) -> [f32; LANES] {
        for i in 0..LANES {
            sum[i] = add_product::<FMA>(a[i], b[i], sum[i]);
        }
        sum
    }

    #[inline(always)]
    fn as_floats(sums: [i32; LANES]) -> [f32; LANES] {
        sums.map(|sum| sum as f32)
    }

    #[inline(always)]
    fn total(mut floats: [f32; LANES]) -> f32 {
        for width in [8, 4, 2, 1] {
            for i in 0..width {
                floats[i] += floats[i + width];
            }
        }
        floats[0]
    }
}
