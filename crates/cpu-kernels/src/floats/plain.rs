//! Vectors that the compiler makes of loops over arrays.

use half::f16;

use super::STEPS;
use super::kind::{FP4, FP8, FROM_BF16, FROM_F16, bits, chunk_size};
use super::lanes::Lanes;
use crate::functions::add_product;
use crate::values::{E2M1, E4M3};

/// `FMA` is whether the processor multiplies and adds in one instruction.
#[derive(Clone, Copy)]
pub(super) struct Floats<const FMA: bool>([f32; 8]);

impl<const FMA: bool> Lanes for Floats<FMA> {
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
        match KIND {
            FROM_BF16 => {
                for (to, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
                    *to = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
                }
            }
            FROM_F16 => {
                for (to, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
                    *to = f16::from_le_bytes(*bytes).to_f32();
                }
            }
            _ => {
                for (to, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
                    *to = f32::from_le_bytes(*bytes);
                }
            }
        }
        Floats(values)
    }

    #[inline(always)]
    fn packed<const KIND: u8>(bytes: &[u8], scale: Self, bias: Self) -> [Self; STEPS] {
        let bits = bits(KIND);
        // Of each lane's codes the first four and the last four bytes, which are all.
        let mut words = [[0; 8]; 2];
        for (lane, codes) in bytes[..chunk_size(KIND)].chunks_exact(bits).enumerate() {
            let mut first = [0; 4];
            let count = bits.min(4);
            first[..count].copy_from_slice(&codes[..count]);
            words[0][lane] = u32::from_le_bytes(first);
            first[..count].copy_from_slice(&codes[bits - count..]);
            words[1][lane] = u32::from_le_bytes(first);
        }
        let mut values = [Floats::zero(); STEPS];
        for (step, Floats(values)) in values.iter_mut().enumerate() {
            let (words, skipped) = match bits {
                5.. if step >= 4 => (words[1], 8 * (bits - 4)),
                _ => (words[0], 0),
            };
            let mask = u32::MAX >> (32 - bits);
            for lane in 0..8 {
                let code = words[lane] >> (bits * step - skipped) & mask;
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
