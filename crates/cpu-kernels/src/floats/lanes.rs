//! Vector operations that the kernels are written in.

use super::sizes::{OF_CHAIN, STEPS, W_TILE};

/// Eight floats.
pub(crate) trait Lanes: Copy {
    /// The sum of a chain, lane by lane.
    type Chain: Copy;

    fn start() -> Self::Chain;

    /// Adds what a chunk adds to a chain.
    fn add_products(sum: Self::Chain, x: &[[f32; 8]; OF_CHAIN], w: [Self; OF_CHAIN])
    -> Self::Chain;

    fn end(sum: Self::Chain) -> Self;

    /// The products of chains of `x` and `w`, lane by lane; the sums are those that
    /// [`add_products`](Self::add_products) makes.
    #[inline(always)]
    fn dots<const M: usize>(x: [&[[f32; 8]]; M], w: [&[[f32; 8]]; W_TILE]) -> [[Self; W_TILE]; M] {
        dots(x, w)
    }

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

    /// The packed weights of a chunk: lane `i` has the eight neighbours from `8 i` on, one in each
    /// step.
    fn packed<const KIND: u8>(bytes: &[u8], scale: Self, bias: Self) -> [Self; STEPS];
}

/// The products of `x` and `w`, lane by lane.
#[inline(always)]
fn dots<V: Lanes, const M: usize>(
    x: [&[[f32; 8]]; M],
    w: [&[[f32; 8]]; W_TILE],
) -> [[V; W_TILE]; M] {
    let count = w[0].len();
    let (x, w) = (x.map(|x| &x[..count]), w.map(|w| &w[..count]));
    let mut dots = [[V::zero(); W_TILE]; M];
    // One step at a time: with more of them in hand, sums would not fit in registers.
    for step in 0..count {
        // A loop: below the third level of optimisation, the closure of a `map` stays a call.
        let mut of_x = [V::zero(); M];
        for i in 0..M {
            of_x[i] = V::load(&x[i][step]);
        }
        for j in 0..W_TILE {
            let w = V::load(&w[j][step]);
            for i in 0..M {
                dots[i][j] = of_x[i].mul_add(w, dots[i][j]);
            }
        }
    }
    dots
}
