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

/// The cross-correlation of `x`, `[n, height, width, channels]`, with `weight`,
/// `[out, kernel height, kernel width, channels]`: `[n, rows, columns, out]`. The kernel moves by `stride`
/// in both directions.
///
/// # Errors
/// Shapes or types that do not fit; empty ones; types that are no floats; a stride below 1; negative
/// padding; a kernel that is larger than the padded picture.
pub fn conv2d(x: &Array, weight: &Array, stride: i32, padding: Padding) -> Result<Array> {
    let [_, height, width, channels] = x.dims()?;
    let [_, kernel_height, kernel_width, inner] = weight.dims()?;
    let Padding { before, after } = padding;
    let paddings = [before[0], before[1], after[0], after[1]];
    let fits = |size: i32, axis: usize, kernel: i32| {
        let padded = i64::from(size) + i64::from(before[axis]) + i64::from(after[axis]);
        padded >= i64::from(kernel) && padded <= i64::from(i32::MAX)
    };
    let is_float = x.dtype().is_float() && x.dtype() == weight.dtype();
    if channels != inner
        || !is_float
        || stride < 1
        || x.size() == 0
        || weight.size() == 0
        || paddings.iter().any(|padding| *padding < 0)
        || !fits(height, 0, kernel_height)
        || !fits(width, 1, kernel_width)
    {
        return Err(Error::new(format!(
            "[conv2d] {x:?} with {padding:?} and kernels {weight:?} with stride {stride} do not fit"
        )));
    }
    let (strides, ones) = ([stride; 2], [1; 2]);
    // SAFETY: the inputs and the lists of two outlive the call; mlx-c only reads them. Channels, kernel and
    // padding were checked above.
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
