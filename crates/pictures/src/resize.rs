//! Resizing with 8 bits a channel in two passes, as torchvision and Pillow do it.
//!
//! Both make the same weights in f64, round them to integers, and round to 8 bits after each of the
//! two passes. They differ in how exact the integers are: torch takes the most bits with which the
//! largest weight still fits 16 bits (`_compute_index_ranges_int16_weights` in ATen's
//! `UpSampleKernel.cpp`), Pillow always takes 22 (`Resample.c`). torch begins with the rows, Pillow
//! 13 with either.

mod weights;

pub use self::weights::{Arithmetic, Filter};

use self::weights::Weights;
use crate::error::PictureError;
use crate::picture::Picture;

/// Most pixels of the step between the passes, and of the result: 192 MiB each. A picture of one
/// column and millions of rows would make more.
const MOST_PIXELS: u64 = 1 << 26;

/// Most weights of a side, with 12 bytes each while they are made: 48 MiB. A side has two to six
/// for each old pixel and three to seven for each new one, so that those of 600,000 pixels fit with
/// any filter. The sums of a row take as much again.
const MOST_TAPS: u64 = 1 << 22;

impl Picture {
    /// The picture with other sides, anti-aliased.
    ///
    /// # Errors
    /// When a new side is 0, or the picture is so long and thin that the way there is too large.
    pub fn resized(
        &self,
        width: u32,
        height: u32,
        filter: Filter,
        arithmetic: Arithmetic,
    ) -> Result<Self, PictureError> {
        if (width, height) == (self.width(), self.height()) {
            return Ok(self.clone());
        }
        let columns_first =
            columns_first((self.width(), self.height()), (width, height), arithmetic);
        let middle = match columns_first {
            true => u64::from(self.width()) * u64::from(height),
            false => u64::from(width) * u64::from(self.height()),
        };
        let result = u64::from(width) * u64::from(height);
        let taps = Weights::taps(self.width(), width, filter).max(Weights::taps(
            self.height(),
            height,
            filter,
        ));
        if result == 0 || middle.max(result) > MOST_PIXELS || taps > MOST_TAPS {
            return Err(PictureError::TooLong {
                width: self.width(),
                height: self.height(),
                to_width: width,
                to_height: height,
            });
        }
        let of_rows = Weights::new(self.width(), width, filter, arithmetic);
        let of_columns = Weights::new(self.height(), height, filter, arithmetic);
        let rgb = if columns_first {
            across(&down(self.rgb(), self.width(), &of_columns), self.width(), &of_rows)
        } else {
            down(&across(self.rgb(), self.width(), &of_rows), width, &of_columns)
        };
        Self::new(width, height, rgb)
    }
}

/// Returns true when the columns come first.
///
/// Pillow 13 begins with them where it takes more than twice as many rows away as columns. This is
/// found from its results, and holds for all of 1,414 pairs of sizes.
fn columns_first(from: (u32, u32), to: (u32, u32), arithmetic: Arithmetic) -> bool {
    let fewer = |from: u32, to: u32| i64::from(from) - i64::from(to);
    let (columns, rows) = (fewer(from.0, to.0), fewer(from.1, to.1));
    arithmetic == Arithmetic::Pillow && rows > 0 && rows > 2 * columns
}

/// Each row with the new width.
fn across(rgb: &[u8], width: u32, weights: &Weights) -> Vec<u8> {
    if weights.keep(width) {
        return rgb.to_vec();
    }
    let row_bytes = 3 * width as usize;
    let mut result = Vec::with_capacity(rgb.len() / row_bytes * 3 * weights.len());
    for row in rgb.chunks_exact(row_bytes) {
        for (begin, taps) in weights.iter() {
            let mut sums = [weights.half(); 3];
            for (pixel, weight) in row[3 * begin..].chunks_exact(3).zip(taps) {
                for (sum, level) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(*level) * weight;
                }
            }
            result.extend(sums.map(|sum| weights.level(sum)));
        }
    }
    result
}

/// Each column with the new height.
fn down(rgb: &[u8], width: u32, weights: &Weights) -> Vec<u8> {
    if weights.keep((rgb.len() / (3 * width as usize)) as u32) {
        return rgb.to_vec();
    }
    let row_bytes = 3 * width as usize;
    let mut result = Vec::with_capacity(row_bytes * weights.len());
    let mut sums = vec![0; row_bytes];
    for (begin, taps) in weights.iter() {
        sums.fill(weights.half());
        for (row, weight) in rgb[begin * row_bytes..].chunks_exact(row_bytes).zip(taps) {
            for (sum, level) in sums.iter_mut().zip(row) {
                *sum += i32::from(*level) * weight;
            }
        }
        result.extend(sums.iter().map(|sum| weights.level(*sum)));
    }
    result
}
