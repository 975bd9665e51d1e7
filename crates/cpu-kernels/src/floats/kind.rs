//! What weights are, as a constant that kernels are compiled for.

use super::CHUNK;
use crate::{Dtype, Packing, Weights};

/// The bits of an affine code, or one of the following.
pub(super) type Kind = u8;
/// Four-bit floats.
pub(super) const FP4: Kind = 14;
/// Eight-bit floats.
pub(super) const FP8: Kind = 18;
/// Dense weights.
pub(super) const FROM_BF16: Kind = 20;
pub(super) const FROM_F16: Kind = 21;
pub(super) const FROM_F32: Kind = 22;

/// Bits of one weight.
pub(super) const fn bits(kind: Kind) -> usize {
    match kind {
        FROM_BF16 | FROM_F16 => 16,
        FROM_F32 => 32,
        FP4 => 4,
        FP8 => 8,
        bits => bits as usize,
    }
}

/// Whether weights are not packed.
pub(super) const fn is_dense(kind: Kind) -> bool {
    matches!(kind, FROM_BF16 | FROM_F16 | FROM_F32)
}

/// For each lane of a chunk of packed weights the bits of its eight codes: their first four bytes and
/// their last four, or all where there are fewer.
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

/// The kind of `weights`.
pub(super) fn kind(weights: Weights<'_>) -> Kind {
    match weights {
        Weights::Dense { dtype: Dtype::Bf16, .. } => FROM_BF16,
        Weights::Dense { dtype: Dtype::F16, .. } => FROM_F16,
        Weights::Dense { dtype: Dtype::F32, .. } => FROM_F32,
        Weights::Packed { packing: Packing::Affine { bits, .. }, .. } => bits as Kind,
        Weights::Packed { packing: Packing::Mxfp4 | Packing::Nvfp4, .. } => FP4,
        Weights::Packed { packing: Packing::Mxfp8, .. } => FP8,
    }
}
