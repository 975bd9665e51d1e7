//! Packed weights as numbers.

use std::ops::Range;

use super::groups::OfRow;
use super::lanes::Lanes;
use super::product::{MAX_CHUNK_SIZE, Product};
use super::sizes::{CHUNK, STEPS};
use super::{Groups, plain};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512f};
use crate::kind::{for_kind, packed};
use crate::level::{Kernel, run_at};
use crate::output::Output;
use crate::pool::split;
use crate::{Dtype, Error, Level, Problem, Weights};

/// Writes packed `weights`, `[n, k]`, as numbers of `dtype` to `out`.
///
/// # Errors
/// Buffers whose sizes do not fit; weights that are not packed.
///
/// # Examples
/// ```
/// use cpu_kernels::{Dtype, Packing, Weights, unpack};
///
/// // Codes 0, 1, 2, 3 four times over, half of which each is worth, less 1.
/// let (data, scales, biases) = ([0b1110_0100; 4], 0.5f32.to_le_bytes(), (-1f32).to_le_bytes());
/// let packing = Packing::Affine { bits: 2, scales: Dtype::F32 };
/// let weights = Weights::Packed { packing, group_size: 16, data: &data, scales: &scales, biases: &biases };
/// let mut out = vec![0; 16 * 4];
/// unpack(weights, [1, 16], Dtype::F32, &mut out)?;
/// let values: Vec<f32> = out.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
/// assert_eq!(values, [-1.0, -0.5, 0.0, 0.5].repeat(4));
/// # Ok::<(), cpu_kernels::Error>(())
/// ```
pub fn unpack(
    weights: Weights<'_>,
    size: [usize; 2],
    dtype: Dtype,
    out: &mut [u8],
) -> Result<(), Error> {
    unpack_at(Level::current(), weights, size, dtype, out)
}

/// [`unpack`] with the instructions of `level`, for tests and comparisons.
///
/// # Errors
/// As [`unpack`], and a level that this processor does not have.
pub fn unpack_at(
    level: Level,
    weights: Weights<'_>,
    [n, k]: [usize; 2],
    dtype: Dtype,
    out: &mut [u8],
) -> Result<(), Error> {
    level.check()?;
    let Weights::Packed { packing, group_size, data, scales, biases } = weights else {
        return Err(Error("weights that are not packed are numbers already".into()));
    };
    Problem { m: 0, positions: 1, n, k, dtype, x: &[], weights, out: &mut [] }.check()?;
    crate::problem::buffer("out", out, &[n, k, dtype.size()])?;
    if n == 0 || k == 0 {
        return Ok(());
    }
    let groups = Some(Groups { packing, group_size, in_row: k / group_size, scales, biases });
    let out = &Output::new(out, (n, k), dtype);
    let unpacked = Unpacked { level, n, of: Product { m: 0, k, x: &[], data, groups, out } };
    for_kind!(packed(packing), unpacked.run());
    Ok(())
}

/// Weights whose sizes were checked.
struct Unpacked<'a> {
    level: Level,
    n: usize,
    /// A product without rows of x, whose result they are.
    of: Product<'a>,
}

impl Unpacked<'_> {
    fn run<const KIND: u8>(&self) {
        split(self.n, usize::MAX, &|rows| {
            // SAFETY: the level was checked.
            unsafe { run_at(self.level, Rows::<KIND> { of: &self.of, rows }) }
        });
    }
}

/// Some of the rows.
struct Rows<'a, const KIND: u8> {
    of: &'a Product<'a>,
    rows: Range<usize>,
}

impl<const KIND: u8> Rows<'_, KIND> {
    #[inline(always)]
    fn write<V: Lanes>(self) {
        let Rows { of, rows } = self;
        let mut groups = OfRow::default();
        of.prepare(&mut groups);
        let mut padded = [0; MAX_CHUNK_SIZE];
        for row in rows {
            let weights = of.weights_of::<V, KIND>(row, &mut groups);
            for chunk in 0..of.chunks() {
                let by_steps = weights.chunk::<V, KIND>(chunk, &mut padded);
                let mut values = [[0.0; STEPS]; CHUNK / STEPS];
                for (step, of_lanes) in by_steps.into_iter().enumerate() {
                    let mut lanes = [0.0; 8];
                    of_lanes.store(&mut lanes);
                    for (values, value) in values.iter_mut().zip(lanes) {
                        values[step] = value;
                    }
                }
                let count = CHUNK.min(of.k - chunk * CHUNK);
                // SAFETY: a unit of work has rows of its own, and is claimed by one thread.
                unsafe { of.out.store(row, chunk * CHUNK, &values.as_flattened()[..count]) };
            }
        }
    }
}

impl<const KIND: u8> Kernel for Rows<'_, KIND> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        #[cfg(target_arch = "x86_64")]
        if FMA {
            return self.write::<avx2::Floats>();
        }
        self.write::<plain::Floats<FMA>>();
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn run_avx512f(self) {
        self.write::<avx512f::Floats>();
    }
}
