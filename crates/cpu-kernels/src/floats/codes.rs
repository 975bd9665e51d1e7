//! Positions of the codes in packed weights.

use super::sizes::CHUNK;
use crate::kind::{Kind, bits};

/// For each lane of a chunk of packed weights the bits of its eight codes: their first four bytes
/// and their last four, or all where there are fewer.
#[inline(always)]
pub(super) fn words<const KIND: Kind>(bytes: &[u8]) -> [[u32; 8]; 2] {
    let mut words = [[0; 8]; 2];
    for (lane, codes) in bytes[..chunk_size(KIND)].chunks_exact(bits(KIND)).enumerate() {
        let mut four = [0; 4];
        let count = bits(KIND).min(4);
        four[..count].copy_from_slice(&codes[..count]);
        words[0][lane] = u32::from_le_bytes(four);
        four[..count].copy_from_slice(&codes[bits(KIND) - count..]);
        words[1][lane] = u32::from_le_bytes(four);
    }
    words
}

/// Which of a lane's words has the code of step `step`, and its first bit there.
#[inline(always)]
pub(super) const fn place(kind: Kind, step: usize) -> (usize, usize) {
    let bits = bits(kind);
    // The last four bytes begin where the first codes of four are behind them.
    if bits > 4 && step >= 4 { (1, bits * step - 8 * (bits - 4)) } else { (0, bits * step) }
}

/// Bytes of a chunk.
pub(super) const fn chunk_size(kind: Kind) -> usize {
    CHUNK / 8 * bits(kind)
}
