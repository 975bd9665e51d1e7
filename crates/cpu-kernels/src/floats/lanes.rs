//! What the kernels want of a vector.

use super::sizes::STEPS;

/// Eight floats.
pub(super) trait Lanes: Copy {
    fn zero() -> Self;

    fn load(from: &[f32; 8]) -> Self;

    fn store(self, to: &mut [f32; 8]);

    fn add(self, other: Self) -> Self;

    /// `self * factor + sum`.
    fn mul_add(self, factor: Self, sum: Self) -> Self;

    /// The value of each lane's index, which is below 8.
    fn choose(values: &[f32; 8], of_lane: &[u32; 8]) -> Self;

    /// The sums of the lanes, in an order that is the same for each of the four.
    fn sums(four: [Self; 4]) -> [f32; 4];

    /// Eight dense weights, from as many bytes as such a weight has bits.
    fn dense<const KIND: u8>(bytes: &[u8]) -> Self;

    /// The packed weights of a chunk: lane `i` has the eight neighbours from `8 i` on, one in each step.
    fn packed<const KIND: u8>(bytes: &[u8], scale: Self, bias: Self) -> [Self; STEPS];
}
