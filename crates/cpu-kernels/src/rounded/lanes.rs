//! Vector operations that the kernels are written in.

use crate::kind::{Kind, bits};

/// Codes of a row of weights that are multiplied at a time.
pub(super) const CHUNK: usize = 128;

/// 32-bit lanes of a vector.
pub(super) const LANES: usize = 16;

/// Products that are added up in a row: of two codes of 4 bits, 24 at most, their sum stays below
/// 2^15.
pub(super) const RUN: usize = 4;

/// Returns true when codes are brought to bytes before they are multiplied.
pub(super) const fn is_spread(kind: Kind) -> bool {
    !matches!(bits(kind), 4 | 8)
}

/// Byte indices, among 16 bytes, for four words that have four codes each. The codes begin at byte
/// `first`. 0x80 stands for no byte: each word's fourth one, and those behind the end. Of odd bits,
/// those of each second word begin within a byte.
#[cfg(target_arch = "x86_64")]
pub(super) const fn places(bits: usize, first: usize) -> [u8; 16] {
    let mut places = [0x80; 16];
    let mut i = 0;
    while i < 16 {
        let place = first + bits * (i / 4) / 2 + i % 4;
        if i % 4 < 3 && place < 16 {
            places[i] = place as u8;
        }
        i += 1;
    }
    places
}

/// The bits of the lower codes of pairs of twice the width, `step` apart: the first of two masks
/// that bring them apart.
#[cfg(target_arch = "x86_64")]
pub(super) const fn lower(bits: usize, step: usize) -> i32 {
    let ones = (1u32 << bits) - 1;
    (if step == 16 { ones } else { ones | ones << 16 }) as i32
}

/// A vector at rest.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u8; 64]);

/// Sixteen lanes of four bytes, or of a 32-bit number.
pub(super) trait Lanes {
    /// 64 bytes: codes, or rounded values of x, as wide as those of x are.
    type Bytes: Copy;
    /// Sixteen whole numbers.
    type Sums: Copy;
    /// Sixteen floats.
    type Floats: Copy;

    /// Bytes of a rounded value of x.
    const X: usize;
    /// Vectors of x in a chunk.
    const PARTS: usize = Self::X * CHUNK / 64;
    /// Subtracted from codes of 8 bits before they are multiplied.
    const OFFSET: f32;
    /// Registers hold twice as many columns and half as many rows again.
    const IS_WIDE: bool;

    fn load(from: &[u8; 64]) -> Self::Bytes;

    fn store(bytes: Self::Bytes, to: &mut Line);

    /// Four bytes, in each lane.
    fn word(four: i32) -> Self::Bytes;

    /// 64 codes of a kind that has neither 4 nor 8 bits, each in a byte, from eight times as many
    /// bytes as it has bits.
    fn spread<const KIND: u8>(bytes: &[u8]) -> Self::Bytes;

    /// Both halves of a chunk of codes that have not four bits, each in a byte.
    #[inline(always)]
    fn halves<const KIND: u8>(bytes: &[u8]) -> [Self::Bytes; 2] {
        if is_spread(KIND) {
            let (first, second) = bytes.split_at(8 * bits(KIND));
            return [Self::spread::<KIND>(first), Self::spread::<KIND>(second)];
        }
        let (lines, _) = bytes.as_chunks::<64>();
        [Self::load(&lines[0]), Self::load(&lines[1])]
    }

    /// The first [`PARTS`](Self::PARTS) have a chunk of codes: a lane has eight neighbours, the
    /// same in each.
    fn chunk<const KIND: u8>(bytes: &[u8]) -> [Self::Bytes; 4];

    /// The codes of words, in as many as it takes; those of kinds that are [spread](Self::spread)
    /// are. A word's codes are next to each other in bytes, or in every second one: all of them,
    /// the even and the odd ones, or every fourth.
    fn codes<const KIND: u8>(words: Self::Bytes) -> [Self::Bytes; 4];

    /// Word `j` of vector `i` becomes word `i` of vector `j`.
    fn transpose(rows: [Self::Bytes; LANES]) -> [Self::Bytes; LANES];

    fn no_sums() -> Self::Sums;

    /// Returns the start value of a run of up to [`RUN`] products.
    fn begin<const KIND: u8>(sums: Self::Sums) -> Self::Sums;

    /// Adds the products of each lane, four or two.
    fn dot<const KIND: u8>(run: Self::Sums, codes: Self::Bytes, x: Self::Bytes) -> Self::Sums;

    /// The sums that `run` began with, and its products.
    fn end<const KIND: u8>(sums: Self::Sums, run: Self::Sums) -> Self::Sums;

    fn floats(from: &[f32; LANES]) -> Self::Floats;

    fn put(floats: Self::Floats, to: &mut [f32; LANES]);

    fn splat(value: f32) -> Self::Floats;

    /// The value of each lane's index, which is below 8.
    fn choose(values: &[f32; LANES], of_lane: &[u32; LANES]) -> Self::Floats;

    fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;

    /// `a * b + sum`.
    fn mul_add(a: Self::Floats, b: Self::Floats, sum: Self::Floats) -> Self::Floats;

    fn as_floats(sums: Self::Sums) -> Self::Floats;

    /// The sum of the lanes.
    fn total(floats: Self::Floats) -> f32;
}
