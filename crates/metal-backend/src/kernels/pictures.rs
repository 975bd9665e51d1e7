//! Operations on pictures, `[n, height, width, channels]`.

use mlx_ffi::cpu::{self, AfterNorm, ChannelGroups};
use mlx_ffi::ops::{self, Padding};
use mlx_ffi::{Array, Dtype, Result};

use super::activation::silu;
use super::choice::Kernels;

impl Kernels {
    /// The cross-correlation of `x` with `weight`, `[out, kernel height, kernel width, channels]`.
    /// MLX's for CPUs computes on one core.
    pub fn conv2d(self, x: &Array, weight: &Array, stride: i32, padding: Padding) -> Result<Array> {
        match self {
            Kernels::Cpu(_) => cpu::conv2d(x, weight, stride, padding),
            _ => ops::conv2d(x, weight, stride, padding),
        }
    }

    /// Normalises groups of channels over each whole picture, in F32; in the type of `x`.
    pub fn group_norm(self, x: &Array, of: ChannelGroups<'_>) -> Result<Array> {
        if self.is_ours_on_cpu() {
            return cpu::group_norm(x, of);
        }
        let ChannelGroups { weight, bias, groups, eps, after } = of;
        let [n, height, width, channels] = x.dims()?;
        let scalar = |value: f32| Array::scalar(value, Dtype::F32);
        let wide = ops::astype(x, Dtype::F32)?;
        let each = channels / groups;
        let count = f64::from(height) * f64::from(width) * f64::from(each);
        // The mean of each group, for each of its channels: [n, 1, 1, channels].
        let mean = |x: &Array| -> Result<Array> {
            // Rows first, so that no sum is longer than a side.
            let sums = ops::sum(&ops::sum(x, 1, false)?, 1, false)?;
            let sums = ops::sum(&ops::reshape(&sums, &[n, groups, each])?, 2, true)?;
            let mean = ops::multiply(&sums, &scalar((1.0 / count) as f32)?)?;
            let mean = ops::broadcast_to(&mean, &[n, groups, each])?;
            ops::reshape(&mean, &[n, 1, 1, channels])
        };
        let middle = mean(&wide)?;
        let distance = ops::subtract(&wide, &middle)?;
        let variance = mean(&ops::multiply(&distance, &distance)?)?;
        let deviation = ops::sqrt(&ops::add(&variance, &scalar(eps)?)?)?;
        let factor = ops::divide(weight, &deviation)?;
        let y = ops::add(&ops::multiply(&distance, &factor)?, bias)?;
        let y = match after {
            AfterNorm::Nothing => y,
            AfterNorm::Silu => silu(&y)?,
            AfterNorm::LeakyRelu(slope) => leaky_relu(&y, slope)?,
            AfterNorm::Snake(factors) => {
                let sine = ops::sin(&ops::multiply(&y, factors)?)?;
                ops::add(&y, &ops::divide(&ops::multiply(&sine, &sine)?, factors)?)?
            }
        };
        ops::astype(&y, x.dtype())
    }
}

/// `x`, times `slope` where it is below 0.
pub(crate) fn leaky_relu(x: &Array, slope: f32) -> Result<Array> {
    ops::maximum(x, &ops::multiply(x, &Array::scalar(slope, x.dtype())?)?)
}
