//! Convolutions of pictures, as products of what each pixel sees and the kernels.

use std::ops::Range;

use crate::problem::buffer;
use crate::{Dtype, Error, Level, Problem, Weights, matmul_at, pool};

/// Bytes of what the pixels of one product see: enough that the kernels are seldom read again.
const STRIP: usize = 16 << 20;

/// Pixels that a thread gathers at a time.
const SOME: usize = 64;

/// The cross-correlation of pictures with kernels, which move by `stride` in both directions.
#[derive(Debug)]
pub struct Conv2d<'a> {
    /// Of x, the weights and the result.
    pub dtype: Dtype,
    /// Pictures, and rows, columns and channels of each.
    pub sizes: [usize; 4],
    /// Channels of the result, rows and columns of a kernel.
    pub kernels: [usize; 3],
    /// Pixels from one place of a kernel to the next.
    pub stride: usize,
    /// Rows of zeros above and columns of zeros to the left.
    pub before: [usize; 2],
    /// Rows of zeros below and columns of zeros to the right.
    pub after: [usize; 2],
    /// `[pictures, rows, columns, channels]`.
    pub x: &'a [u8],
    /// `[channels of the result, kernel rows, kernel columns, channels]`.
    pub weight: &'a [u8],
    /// `[pictures, rows, columns, channels]` of the result.
    pub out: &'a mut [u8],
}

/// Computes `task.out`, summed in f32.
///
/// # Errors
/// Buffers whose sizes do not fit, and kernels that are larger than the padded picture; nothing is
/// written then.
pub fn conv2d(task: Conv2d<'_>) -> Result<(), Error> {
    conv2d_at(Level::current(), task)
}

/// Computes `task.out` with the instructions of `level`, for tests and comparisons.
///
/// # Errors
/// Those of [`conv2d`], and a level that this processor does not have.
pub fn conv2d_at(level: Level, task: Conv2d<'_>) -> Result<(), Error> {
    level.check()?;
    let Conv2d { dtype, sizes, kernels, .. } = task;
    let [pictures, _, _, channels] = sizes;
    let [n, rows, columns] = kernels;
    let size = dtype.size();
    let [out_rows, out_columns] = task.places()?;
    buffer("x", task.x, &[pictures, task.sizes[1], task.sizes[2], channels, size])?;
    buffer("the weight", task.weight, &[n, rows, columns, channels, size])?;
    buffer("out", task.out, &[pictures, out_rows, out_columns, n, size])?;
    let (pixels, k) = (pictures * out_rows * out_columns, rows * columns * channels);
    let Conv2d { x, weight, out, .. } = task;
    let task = &Conv2d { out: &mut [], ..task };
    // The whole picture is one sequence, however it is cut into strips.
    let positions = out_rows * out_columns;
    let weights = Weights::Dense { dtype, data: weight };
    if rows * columns == 1 && task.stride == 1 && [task.before, task.after] == [[0; 2]; 2] {
        return matmul_at(level, Problem { m: pixels, positions, n, k, dtype, x, weights, out });
    }
    let each = (STRIP / (k * size).max(1)).max(SOME);
    let mut seen = vec![0; each.min(pixels) * k * size];
    for first in (0..pixels).step_by(each) {
        let count = each.min(pixels - first);
        let seen = &mut seen[..count * k * size];
        {
            let parts = pool::Parts::of(seen);
            pool::run(count.div_ceil(SOME), &|unit| {
                let of = unit * SOME..count.min((unit + 1) * SOME);
                // SAFETY: each pixel is one unit's.
                let to = unsafe { parts.part(of.start * k * size..of.end * k * size) };
                task.gather(first + of.start..first + of.end, [out_rows, out_columns], to);
            });
        }
        let out = &mut out[first * n * size..][..count * n * size];
        matmul_at(level, Problem { m: count, positions, n, k, dtype, x: seen, weights, out })?;
    }
    Ok(())
}

impl Conv2d<'_> {
    /// Rows and columns of the result.
    fn places(&self) -> Result<[usize; 2], Error> {
        let [_, height, width, _] = self.sizes;
        let [_, rows, columns] = self.kernels;
        if self.sizes.contains(&0) || self.kernels.contains(&0) {
            return Err(Error(format!("kernels {:?} over pixels {:?}", self.kernels, self.sizes)));
        }
        let along = |axis: usize, size: usize, kernel: usize| {
            let padded = size.checked_add(self.before[axis])?.checked_add(self.after[axis])?;
            Some(padded.checked_sub(kernel)?.checked_div(self.stride)? + 1)
        };
        along(0, height, rows)
            .zip(along(1, width, columns))
            .map(|(rows, columns)| [rows, columns])
            .ok_or_else(|| {
                Error(format!(
                    "kernels of {rows} × {columns} do not move by {} over {height} × {width} pixels and zeros of {:?} and {:?}",
                    self.stride, self.before, self.after
                ))
            })
    }

    /// Writes what the pixels of the result see: rows of a kernel one after the other.
    fn gather(&self, pixels: Range<usize>, [out_rows, out_columns]: [usize; 2], mut to: &mut [u8]) {
        let [_, height, width, channels] = self.sizes;
        let [_, rows, columns] = self.kernels;
        let size = channels * self.dtype.size();
        for pixel in pixels {
            let (row, column) = (pixel / out_columns, pixel % out_columns);
            let (picture, row) = (row / out_rows, row % out_rows);
            // The first column that it sees, and those that lie on the picture.
            let left = column * self.stride;
            let seen = left.max(self.before[1])..(left + columns).min(self.before[1] + width);
            for kernel_row in 0..rows {
                let part;
                (part, to) = to.split_at_mut(columns * size);
                let y = (row * self.stride + kernel_row).checked_sub(self.before[0]);
                match y.filter(|y| *y < height && !seen.is_empty()) {
                    None => part.fill(0),
                    Some(y) => {
                        let (begin, end) = ((seen.start - left) * size, (seen.end - left) * size);
                        let from = (picture * height + y) * width + seen.start - self.before[1];
                        part[..begin].fill(0);
                        part[begin..end].copy_from_slice(&self.x[from * size..][..end - begin]);
                        part[end..].fill(0);
                    }
                }
            }
        }
    }
}
