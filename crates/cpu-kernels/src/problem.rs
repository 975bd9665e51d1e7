//! The operands of a matrix product, and checks of their sizes.

use std::fmt;

/// The type of activations, dense weights, and the scales of affine groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// 32-bit floating point.
    F32,
    /// 16-bit IEEE floating point.
    F16,
    /// 16-bit brain floating point.
    Bf16,
}

impl Dtype {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
        }
    }
}

/// How a packed weight represents a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    /// `scale · q + bias` with unsigned `q` of 2, 3, 4, 5, 6 or 8 bits.
    Affine {
        /// Bits of one weight.
        bits: usize,
        /// The type of scales and biases.
        scales: Dtype,
    },
    /// e2m1 values with an e8m0 scale for 32 weights.
    Mxfp4,
    /// e4m3 values with an e8m0 scale for 32 weights.
    Mxfp8,
    /// e2m1 values with an e4m3 scale for 16 weights.
    Nvfp4,
}

impl Packing {
    /// Bits of one weight.
    pub fn bits(self) -> usize {
        match self {
            Packing::Affine { bits, .. } => bits,
            Packing::Mxfp4 | Packing::Nvfp4 => 4,
            Packing::Mxfp8 => 8,
        }
    }

    /// Bytes of one group's scale.
    pub fn scale_size(self) -> usize {
        match self {
            Packing::Affine { scales, .. } => scales.size(),
            Packing::Mxfp4 | Packing::Mxfp8 | Packing::Nvfp4 => 1,
        }
    }
}

/// A weight matrix of `n` rows and `k` columns, row-major, little-endian.
#[derive(Clone, Copy, Debug)]
pub enum Weights<'a> {
    /// One value after the other.
    Dense {
        /// Their type.
        dtype: Dtype,
        /// `n · k` values.
        data: &'a [u8],
    },
    /// Groups of values along each row that share a scale, packed from the lowest bit on without
    /// gaps, across the borders of bytes and words.
    Packed {
        /// How a group is represented.
        packing: Packing,
        /// Weights that share a scale: 16, 32, 64 or 128 affine, 32 mxfp4 and mxfp8, 16 nvfp4.
        group_size: usize,
        /// `n · k · bits / 8` bytes.
        data: &'a [u8],
        /// `n · k / group_size` scales.
        scales: &'a [u8],
        /// As many biases for the affine packing, empty for the others.
        biases: &'a [u8],
    },
}

/// `out = x wᵀ`.
#[derive(Debug)]
pub struct Problem<'a> {
    /// Rows of `x` and of `out`.
    pub m: usize,
    /// How many rows of `x` in a row are positions of one sequence: a row of `out` depends on that
    /// number and on its row of `x`, not on the other rows. 16 and more in bf16 and f16 may be
    /// summed in another order than fewer, and [`Level::Amx`](crate::Level::Amx) multiplies them by
    /// tiles. 1: each row is a sequence's step.
    pub positions: usize,
    /// Rows of the weights, columns of `out`.
    pub n: usize,
    /// Columns of `x` and of the weights.
    pub k: usize,
    /// The type of `x` and of `out`.
    pub dtype: Dtype,
    /// `[m, k]`.
    pub x: &'a [u8],
    /// `[n, k]`.
    pub weights: Weights<'a>,
    /// `[m, n]`.
    pub out: &'a mut [u8],
}

/// A size that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub(crate) String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl Problem<'_> {
    /// Checks every buffer against the sizes: what all kernels rely on.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Problem { m, n, k, dtype, .. } = *self;
        buffer("x", self.x, &[m, k, dtype.size()])?;
        buffer("out", self.out, &[m, n, dtype.size()])?;
        match self.weights {
            Weights::Dense { dtype, data } => buffer("weights", data, &[n, k, dtype.size()]),
            Weights::Packed { packing, group_size, data, scales, biases } => {
                let known: &[usize] = match packing {
                    Packing::Affine { .. } => &[16, 32, 64, 128],
                    Packing::Mxfp4 | Packing::Mxfp8 => &[32],
                    Packing::Nvfp4 => &[16],
                };
                let bits = packing.bits();
                if !known.contains(&group_size) || !matches!(bits, 2..=6 | 8) {
                    return Err(Error(format!("no {packing:?} in groups of {group_size}")));
                }
                if k % group_size != 0 {
                    return Err(Error(format!("{k} columns in groups of {group_size}")));
                }
                // A group takes whole bytes, so a row does too.
                buffer("weights", data, &[n, k / 8, bits])?;
                buffer("scales", scales, &[n, k / group_size, packing.scale_size()])?;
                match packing {
                    Packing::Affine { scales, .. } => {
                        buffer("biases", biases, &[n, k / group_size, scales.size()])
                    }
                    _ => buffer("biases", biases, &[0]),
                }
            }
        }
    }
}

pub(crate) fn buffer(name: &str, bytes: &[u8], sizes: &[usize]) -> Result<(), Error> {
    let expected = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    if expected == Some(bytes.len()) {
        return Ok(());
    }
    Err(Error(format!("{name} has {} bytes, expected the product of {sizes:?}", bytes.len())))
}
