//! Vectors that the compiler makes of loops over arrays.

use super::codes::{place, words};
use super::lanes::Lanes;
use super::sizes::STEPS;
use crate::Dtype;
use crate::functions::add_product;
use crate::kind::{FP4, FP8, FROM_BF16, FROM_F16, bits};
use crate::values::{E2M1, E4M3, widen};

/// `FMA` is whether the processor multiplies and adds in one instruction.
#[derive(Clone, Copy)]
pub(super) struct Floats<const FMA: bool>(pub(super) [f32; 8]);

impl<const FMA: bool> Lanes for Floats<FMA> {
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
        Floats([0.0; 8])
    }

    #[inline(always)]
    fn load(from: &[f32; 8]) -> Self {
        Floats(*from)
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; 8]) {
        *to = self.0;
    }

    #[inline(always)]
    fn add(mut self, other: Self) -> Self {
        for lane in 0..8 {
            self.0[lane] += other.0[lane];
        }
        self
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, mut sum: Self) -> Self {
        for lane in 0..8 {
            sum.0[lane] = add_product::<FMA>(self.0[lane], factor.0[lane], sum.0[lane]);
        }
        sum
    }

    #[inline(always)]
    fn choose(values: &[f32; 8], of_lane: &[u32; 8]) -> Self {
        Floats(of_lane.map(|of_lane| values[of_lane as usize % 8]))
    }

    #[inline(always)]
    fn sums(four: [Self; 4]) -> [f32; 4] {
        four.map(|Floats([a, b, c, d, e, f, g, h])| ((a + e) + (c + g)) + ((b + f) + (d + h)))
    }

    #[inline(always)]
    fn dense<const KIND: u8>(bytes: &[u8]) -> Self {
        let mut values = [0.0; 8];
        let dtype = match KIND {
            FROM_BF16 => Dtype::Bf16,
            FROM_F16 => Dtype::F16,
            _ => Dtype::F32,
        };
        widen(dtype, bytes, &mut values);
        Floats(values)
    }

    #[inline(always)]
    fn packed<const KIND: u8>(bytes: &[u8], scale: Self, bias: Self) -> [Self; STEPS] {
        let words = words::<KIND>(bytes);
        let mask = u32::MAX >> (32 - bits(KIND));
        let mut values = [Floats::zero(); STEPS];
        for (step, Floats(values)) in values.iter_mut().enumerate() {
            let (word, first) = place(KIND, step);
            for lane in 0..8 {
                let code = words[word][lane] >> first & mask;
                let scale = scale.0[lane];
                values[lane] = match KIND {
                    FP4 => E2M1[code as usize % 16] * scale,
                    FP8 => E4M3[code as usize % 256] * scale,
                    // As a signed number it becomes a float in one instruction.
                    _ => add_product::<FMA>(code as i32 as f32, scale, bias.0[lane]),
                };
            }
        }
        values
    }
}
