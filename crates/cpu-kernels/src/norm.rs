//! Root-mean-square normalisation.

use std::ops::Range;

use crate::generic::add_product;
use crate::output::Output;
use crate::problem::buffer;
use crate::rowwise::{self, Rows};
use crate::values::{narrow, rounded, widen};
use crate::{Dtype, Error, Level};

/// Elements that are widened at a time.
const BLOCK: usize = 64;
const LANES: usize = 16;

/// `out = x / √(mean(x²) + eps) · weight` for each row; what is left of the division is rounded to
/// the type before it is multiplied.
#[derive(Debug)]
pub struct RmsNorm<'a> {
    /// Of x, the weight and the result.
    pub dtype: Dtype,
    /// Elements of a row.
    pub size: usize,
    /// What is added to the mean.
    pub eps: f32,
    /// Rows of `size`.
    pub x: &'a [u8],
    /// `size` factors, or none.
    pub weight: Option<&'a [u8]>,
    /// As `x`.
    pub out: &'a mut [u8],
}

/// Computes `norm.out`. A row's result does not depend on the other rows.
///
/// # Errors
/// Buffers whose sizes do not fit; nothing is written then.
pub fn rms_norm(norm: RmsNorm<'_>) -> Result<(), Error> {
    rms_norm_at(Level::best(), norm)
}

/// Computes `norm.out` with the instructions of `level`, for tests and comparisons.
///
/// # Errors
/// As [`rms_norm`], and a level that this processor does not have.
pub fn rms_norm_at(level: Level, norm: RmsNorm<'_>) -> Result<(), Error> {
    level.check()?;
    let RmsNorm { dtype, size, eps, x, weight, out } = norm;
    let count = x.len() / (size * dtype.size()).max(1);
    buffer("x", x, &[count, size, dtype.size()])?;
    buffer("out", out, &[count, size, dtype.size()])?;
    if let Some(weight) = weight {
        buffer("weight", weight, &[size, dtype.size()])?;
    }
    let out = Output::new(out, (count, size), dtype);
    rowwise::run(level, count, size, &Norm { dtype, size, eps, x, weight, out });
    Ok(())
}

struct Norm<'a> {
    dtype: Dtype,
    size: usize,
    eps: f32,
    x: &'a [u8],
    weight: Option<&'a [u8]>,
    out: Output<'a>,
}

impl Rows for Norm<'_> {
    #[inline(always)]
    fn compute<const FMA: bool>(&self, rows: Range<usize>) {
        let Norm { dtype, size, .. } = *self;
        let bytes = dtype.size();
        for row in rows {
            let x = &self.x[row * size * bytes..][..size * bytes];
            let mut lanes = [0.0; LANES];
            for part in x.chunks(BLOCK * bytes) {
                let mut values = [0.0; BLOCK];
                widen(dtype, part, &mut values);
                for values in values.as_chunks::<LANES>().0 {
                    for (lane, &value) in lanes.iter_mut().zip(values) {
                        *lane = add_product::<FMA>(value, value, *lane);
                    }
                }
            }
            for width in [8, 4, 2, 1] {
                for i in 0..width {
                    lanes[i] += lanes[i + width];
                }
            }
            let factor = 1.0 / (lanes[0] / size as f32 + self.eps).sqrt();
            for (i, part) in x.chunks(BLOCK * bytes).enumerate() {
                let mut values = [0.0; BLOCK];
                widen(dtype, part, &mut values);
                let count = part.len() / bytes;
                for value in &mut values {
                    *value *= factor;
                }
                if let Some(weight) = self.weight {
                    let mut factors = [0.0; BLOCK];
                    widen(dtype, &weight[i * BLOCK * bytes..][..part.len()], &mut factors);
                    for (value, factor) in values.iter_mut().zip(&factors) {
                        *value = rounded(dtype, *value) * factor;
                    }
                }
                narrow(dtype, &values[..count], |at, bytes| {
                    // SAFETY: each row is computed by one thread.
                    unsafe { self.out.store_bytes(row, i * BLOCK + at, bytes) }
                });
            }
        }
    }
}
