//! Convolutions and norms of pictures by our own kernels for CPUs.

use cpu_kernels::{Conv2d, GroupNorm};

use super::operation::{Inputs, Outcome, floats, operation};
use super::{failed, kernel_dtype};
use crate::ops::{Padding, places};
use crate::{Array, Dtype, Error, Result};

/// [`ops::conv2d`](crate::ops::conv2d), on all cores.
///
/// # Errors
/// Those of [`ops::conv2d`](crate::ops::conv2d); a stream of the GPU.
pub fn conv2d(x: &Array, weight: &Array, stride: i32, padding: Padding) -> Result<Array> {
    let [out_rows, out_columns] = places(x, weight, stride, padding)?;
    let dtype = kernel_dtype(x.dtype())?;
    let sizes = x.dims::<4>()?;
    let [n, rows, columns, _] = weight.dims()?;
    let shape = [sizes[0], out_rows, out_columns, n];
    let outcome = Outcome::row_major(x.dtype(), &shape);
    let (sizes, kernels) = (sizes.map(whole), [n, rows, columns].map(whole));
    let (before, after) = (padding.before.map(whole), padding.after.map(whole));
    let stride = whole(stride);
    operation(&[x, weight], Inputs::RowMajor, outcome, move |inputs, out| {
        let [x, weight] = inputs else {
            return Err(Error::new("a convolution without operands"));
        };
        let (x, weight) = (x.bytes, weight.bytes);
        let task = Conv2d { dtype, sizes, kernels, stride, before, after, x, weight, out };
        cpu_kernels::conv2d(task).map_err(failed)
    })
}

/// Parameters of [`group_norm`].
#[derive(Clone, Copy, Debug)]
pub struct ChannelGroups<'a> {
    /// `[channels]` F32.
    pub weight: &'a Array,
    /// `[channels]` F32.
    pub bias: &'a Array,
    /// Groups of one size that the channels are.
    pub groups: i32,
    /// Added to the variance.
    pub eps: f32,
    /// Set to apply `x · sigmoid(x)` to the result.
    pub silu: bool,
}

/// `(x - mean) / √(variance + eps) · weight + bias` for `x` of `[pictures, rows, columns,
/// channels]`, with mean and variance of each group of channels over a whole picture: computed in
/// F32, and rounded once.
///
/// # Errors
/// Shapes or types that do not fit; types other than f32, f16 and bf16; a stream of the GPU.
pub fn group_norm(x: &Array, of: ChannelGroups<'_>) -> Result<Array> {
    let ChannelGroups { weight, bias, groups, eps, silu } = of;
    let dtype = kernel_dtype(x.dtype())?;
    let [pictures, rows, columns, channels] = x.dims()?;
    let fits = |part: &Array| part.shape() == [channels] && part.dtype() == Dtype::F32;
    if groups < 1 || channels % groups != 0 || !fits(weight) || !fits(bias) {
        return Err(Error::new(format!(
            "pictures {x:?} with weight {weight:?} and bias {bias:?} are no {groups} groups of channels"
        )));
    }
    let outcome = Outcome::row_major(x.dtype(), x.shape());
    let [pictures, rows, columns, channels, groups] =
        [pictures, rows, columns, channels, groups].map(whole);
    operation(&[x, weight, bias], Inputs::RowMajor, outcome, move |inputs, out| {
        let [x, weight, bias] = inputs else {
            return Err(Error::new("a norm without operands"));
        };
        let [weight, bias] = [weight, bias].map(|part| floats(part.bytes).collect::<Vec<f32>>());
        let (pixels, x) = (rows * columns, x.bytes);
        let (weight, bias) = (&weight[..], &bias[..]);
        let task = GroupNorm {
            dtype,
            pictures,
            pixels,
            channels,
            groups,
            eps,
            silu,
            x,
            weight,
            bias,
            out,
        };
        cpu_kernels::group_norm(task).map_err(failed)
    })
}

/// A size, which is not negative.
fn whole(size: i32) -> usize {
    size as usize
}
