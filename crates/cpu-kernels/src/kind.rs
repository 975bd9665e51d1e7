//! The kind of weights, as a constant that kernels are compiled for.

use crate::{Dtype, Packing, Weights};

/// The bits of an affine code, or one of the following.
pub(crate) type Kind = u8;
/// Four-bit floats.
pub(crate) const FP4: Kind = 14;
/// Eight-bit floats.
pub(crate) const FP8: Kind = 18;
/// Dense weights, which become floats.
pub(crate) const FROM_BF16: Kind = 20;
pub(crate) const FROM_F16: Kind = 21;
pub(crate) const FROM_F32: Kind = 22;
/// Dense weights in bf16, whose pairs are multiplied with pairs of x.
#[cfg(target_arch = "x86_64")]
pub(crate) const PAIRS: Kind = 23;

/// Bits of one weight.
pub(crate) const fn bits(kind: Kind) -> usize {
    match kind {
        FROM_F32 => 32,
        FP4 => 4,
        FP8 => 8,
        affine if affine <= 8 => affine as usize,
        // The other dense ones.
        _ => 16,
    }
}

/// Returns true for weights that are not packed.
pub(crate) const fn is_dense(kind: Kind) -> bool {
    kind >= FROM_BF16
}

/// The kind of dense weights that become floats.
pub(crate) const fn dense(dtype: Dtype) -> Kind {
    match dtype {
        Dtype::Bf16 => FROM_BF16,
        Dtype::F16 => FROM_F16,
        Dtype::F32 => FROM_F32,
    }
}

/// The kind of packed weights.
pub(crate) fn packed(packing: Packing) -> Kind {
    match packing {
        Packing::Affine { bits, .. } => bits as Kind,
        Packing::Mxfp4 | Packing::Nvfp4 => FP4,
        Packing::Mxfp8 => FP8,
    }
}

/// The kind of `weights`.
pub(crate) fn kind(weights: Weights<'_>) -> Kind {
    match weights {
        Weights::Dense { dtype, .. } => dense(dtype),
        Weights::Packed { packing, .. } => packed(packing),
    }
}

/// Calls a method that is compiled for each kind of packed weights.
macro_rules! for_kind {
    ($kind:expr, $object:ident.$method:ident($($argument:expr),*)) => {
        match $kind {
            2 => $object.$method::<2>($($argument),*),
            3 => $object.$method::<3>($($argument),*),
            4 => $object.$method::<4>($($argument),*),
            5 => $object.$method::<5>($($argument),*),
            6 => $object.$method::<6>($($argument),*),
            8 => $object.$method::<8>($($argument),*),
            $crate::kind::FP4 => $object.$method::<{ $crate::kind::FP4 }>($($argument),*),
            $crate::kind::FP8 => $object.$method::<{ $crate::kind::FP8 }>($($argument),*),
            _ => unreachable!("bits were checked at the entry"),
        }
    };
}
pub(crate) use for_kind;
