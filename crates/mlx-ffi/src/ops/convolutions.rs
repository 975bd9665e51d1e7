//! Convolutions of pictures.

use crate::stream::current;
use crate::{Array, Error, Result, sys};

/// Rows and columns of zeros around a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Padding {
    /// Above and to the left.
    pub before: [i32; 2],
    /// Below and to the right.
    pub after: [i32; 2],
}

impl Padding {
    /// As many on all sides.
    pub fn around(size: i32) -> Padding {
        Padding { before: [size; 2], after: [size; 2] }
    }
}

/// The cross-correlation of `x`, `[n, height, width, channels]`, with `weight`, `[out, kernel
/// height, kernel width, channels]`: `[n, rows, columns, out]`. The kernel moves by `stride` in
/// both directions.
///
/// # Errors
/// Shapes or types that do not fit; empty ones; types that are no floats; a stride below 1;
/// negative padding; a kernel that is larger than the padded picture.
pub fn conv2d(x: &Array, weight: &Array, stride: i32, padding: Padding) -> Result<Array> {
    places(x, weight, stride, padding)?;
    let Padding { before, after } = padding;
    let (strides, ones) = ([stride; 2], [1; 2]);
    // SAFETY: the inputs and the lists of two outlive the call; mlx-c only reads them. Channels,
    // kernel and padding were checked above.
    Array::from_op(|out| unsafe {
        sys::mlx_conv_general(
            out,
            x.raw(),
            weight.raw(),
            strides.as_ptr(),
            2,
            before.as_ptr(),
            2,
            after.as_ptr(),
            2,
            ones.as_ptr(),
            2,
            ones.as_ptr(),
            2,
            1,
            false,
            current(),
        )
    })
}

/// Rows and columns of a convolution's result, whose operands fit.
///
/// # Errors
/// Those of [`conv2d`].
pub(crate) fn places(x: &Array, weight: &Array, stride: i32, padding: Padding) -> Result<[i32; 2]> {
    let [_, height, width, channels] = x.dims()?;
    let [_, kernel_height, kernel_width, inner] = weight.dims()?;
    let Padding { before, after } = padding;
    let along = |size: i32, axis: usize, kernel: i32| {
        let padded = i64::from(size) + i64::from(before[axis]) + i64::from(after[axis]);
        let fits = padded >= i64::from(kernel) && padded <= i64::from(i32::MAX) && stride > 0;
        fits.then(|| (padded as i32 - kernel) / stride + 1)
    };
    let is_float = x.dtype().is_float() && x.dtype() == weight.dtype();
    let is_empty = x.size() == 0 || weight.size() == 0;
    let is_negative = before.iter().chain(&after).any(|padding| *padding < 0);
    along(height, 0, kernel_height)
        .zip(along(width, 1, kernel_width))
        .filter(|_| channels == inner && is_float && !is_empty && !is_negative)
        .map(|(rows, columns)| [rows, columns])
        .ok_or_else(|| {
            Error::new(format!(
                "[conv2d] {x:?} with {padding:?} and kernels {weight:?} with stride {stride} do not fit"
            ))
        })
}
