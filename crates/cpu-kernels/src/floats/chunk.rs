//! Chunks in memory.

use std::ops::Range;

use super::lanes::Lanes;
use super::sizes::{CHAINS, OF_CHAIN, STEPS};

/// Chunks that are added up lane by lane before the lanes are: a block. A tile's share of it stays
/// in the first-level cache.
const DEPTH: usize = 16;

/// Room for a chunk.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Chunk([[f32; 8]; STEPS]);

impl Chunk {
    pub(super) const ZERO: Chunk = Chunk([[0.0; 8]; STEPS]);
}

/// The chunks of a row, block by block.
#[inline(always)]
pub(super) fn blocks(chunks: usize) -> impl Iterator<Item = Range<usize>> {
    (0..chunks).step_by(DEPTH).map(move |first| first..chunks.min(first + DEPTH))
}

/// The vectors of `chunks`, one after the other.
#[inline(always)]
pub(super) fn vectors(chunks: &[Chunk]) -> &[[f32; 8]] {
    // SAFETY: a chunk is nothing but its vectors: its size is a multiple of its alignment.
    unsafe { std::slice::from_raw_parts(chunks.as_ptr().cast(), chunks.len() * STEPS) }
}

/// The chains of a block; each has two vectors of a chunk.
#[inline(always)]
pub(super) fn chains(block: &[Chunk]) -> [&[[[f32; 8]; OF_CHAIN]]; CHAINS] {
    let (twos, _) = vectors(block).as_chunks::<OF_CHAIN>();
    let (a, b) = twos.split_at(2 * block.len());
    let ((a, b), (c, d)) = (a.split_at(block.len()), b.split_at(block.len()));
    [a, b, c, d]
}

/// Puts chunk `chunk` into a block.
#[inline(always)]
pub(super) fn set<V: Lanes>(block: &mut [Chunk], chunk: usize, values: [V; STEPS]) {
    let length = block.len() * OF_CHAIN;
    // SAFETY: a chunk is nothing but its vectors: its size is a multiple of its alignment.
    let vectors: &mut [[f32; 8]] =
        unsafe { std::slice::from_raw_parts_mut(block.as_mut_ptr().cast(), block.len() * STEPS) };
    for (step, value) in values.into_iter().enumerate() {
        let place = step % CHAINS * length + chunk * OF_CHAIN + step / CHAINS;
        value.store(&mut vectors[place]);
    }
}
