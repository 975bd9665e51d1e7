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

/// The function of each value behind a norm.
#[derive(Clone, Copy, Debug)]
pub enum AfterNorm<'a> {
    /// The value itself.
    Nothing,
    /// `x · sigmoid(x)`.
    Silu,
    /// `x`, times this where it is below 0.
    LeakyRelu(f32),
    /// `x + sin²(a x) / a` with the `a` of its channel, `[channels]` F32.
    Snake(&'a Array),
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
    /// Applied to the result.
    pub after: AfterNorm<'a>,
}

/// `(x - mean) / √(variance + eps) · weight + bias` for `x` of `[pictures, rows, columns,
/// channels]`, with mean and variance of each group of channels over a whole picture: computed in
/// F32, and rounded once.
///
/// # Errors
/// Shapes or types that do not fit; types other than f32, f16 and bf16; a stream of the GPU.
pub fn group_norm(x: &Array, of: ChannelGroups<'_>) -> Result<Array> {
    let ChannelGroups { weight, bias, groups, eps, after } = of;
    let dtype = kernel_dtype(x.dtype())?;
    let [pictures, rows, columns, channels] = x.dims()?;
    let fits = |part: &Array| part.shape() == [channels] && part.dtype() == Dtype::F32;
    let factors_fit = !matches!(after, AfterNorm::Snake(factors) if !fits(factors));
    if groups < 1 || channels % groups != 0 || !fits(weight) || !fits(bias) || !factors_fit {
        return Err(Error::new(format!(
            "pictures {x:?} with weight {weight:?} and bias {bias:?} are no {groups} groups of channels"
        )));
    }
    let outcome = Outcome::row_major(x.dtype(), x.shape());
    let [pictures, rows, columns, channels, groups] =
        [pictures, rows, columns, channels, groups].map(whole);
    // The weight stands in for factors that there are none of.
    let (factors, after) = match after {
        AfterNorm::Nothing => (weight, Function::Nothing),
        AfterNorm::Silu => (weight, Function::Silu),
        AfterNorm::LeakyRelu(slope) => (weight, Function::LeakyRelu(slope)),
        AfterNorm::Snake(factors) => (factors, Function::Snake),
    };
    operation(&[x, weight, bias, factors], Inputs::RowMajor, outcome, move |inputs, out| {
        let [x, weight, bias, factors] = inputs else {
            return Err(Error::new("a norm without operands"));
        };
        let [weight, bias, factors] =
            [weight, bias, factors].map(|part| floats(part.bytes).collect::<Vec<f32>>());
        let after = match after {
            Function::Nothing => cpu_kernels::AfterNorm::Nothing,
            Function::Silu => cpu_kernels::AfterNorm::Silu,
            Function::LeakyRelu(slope) => cpu_kernels::AfterNorm::LeakyRelu(slope),
            Function::Snake => cpu_kernels::AfterNorm::Snake(&factors),
        };
        let (pixels, x) = (rows * columns, x.bytes);
        let (weight, bias) = (&weight[..], &bias[..]);
        let task = GroupNorm {
            dtype,
            pictures,
            pixels,
            channels,
            groups,
            eps,
            after,
            x,
            weight,
            bias,
            out,
        };
        cpu_kernels::group_norm(task).map_err(failed)
    })
}

/// [`AfterNorm`] without its array.
#[derive(Clone, Copy)]
enum Function {
    Nothing,
    Silu,
    LeakyRelu(f32),
    Snake,
}

/// A size, which is not negative.
fn whole(size: i32) -> usize {
    size as usize
}
