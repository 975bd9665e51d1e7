//! Layers over pictures, `[1, height, width, channels]`.

use mlx_ffi::cpu::{AfterNorm, ChannelGroups};
use mlx_ffi::ops::{self, Padding};
use mlx_ffi::{Array, Dtype, Result};

use crate::error::Result as Read;
use crate::kernels::{Kernels, silu};
use crate::layers::Linear;
use crate::weights::Weights;

/// A convolution with a bias.
#[derive(Debug)]
pub(super) struct Conv2d {
    /// `[out, size, size, channels]`.
    kernels: Array,
    /// `[out]`.
    bias: Array,
    stride: i32,
    padding: Padding,
    computes: Kernels,
}

impl Conv2d {
    /// The module under `w` from `channels` to `out`, whose result has the size of its input.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn same(w: &Weights, [channels, out, size]: [i32; 3]) -> Read<Conv2d> {
        let (kernels, bias) = (w.kernels2d([out, channels, size])?, w.tensor("bias", &[out])?);
        let (padding, computes) = (Padding::around(size / 2), w.kernels());
        Ok(Conv2d { kernels, bias, stride: 1, padding, computes })
    }

    /// The module under `w` that halves a picture, which has zeros below and to the right.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn halving(w: &Weights, channels: i32) -> Read<Conv2d> {
        let padding = Padding { before: [0; 2], after: [1; 2] };
        Ok(Conv2d { stride: 2, padding, ..Conv2d::same(w, [channels, channels, 3])? })
    }

    /// The type of its weights.
    pub fn dtype(&self) -> Dtype {
        self.kernels.dtype()
    }

    pub fn forward(&self, x: &Array) -> Result<Array> {
        let sums = self.computes.conv2d(x, &self.kernels, self.stride, self.padding)?;
        self.plus(&sums, &self.bias)
    }

    /// The sum of a result and another one, or a value for each of its channels.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn plus(&self, x: &Array, y: &Array) -> Result<Array> {
        self.computes.sum(x, y)
    }
}

/// A norm of `[n, height, width, channels]`.
pub(super) trait Norm {
    /// The values, normed: the shape and type of `x`.
    ///
    /// # Errors
    /// Those of MLX.
    fn forward(&self, x: &Array) -> Result<Array>;

    /// A SiLU behind it.
    ///
    /// # Errors
    /// Those of MLX.
    fn with_silu(&self, x: &Array) -> Result<Array> {
        silu(&self.forward(x)?)
    }
}

/// Normalises groups of channels over the whole picture, in F32.
#[derive(Debug)]
pub(super) struct GroupNorm {
    /// `[channels]`, F32.
    weight: Array,
    /// `[channels]`, F32.
    bias: Array,
    groups: i32,
    eps: f32,
    computes: Kernels,
}

impl GroupNorm {
    /// The module under `w`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn load(w: &Weights, channels: i32, groups: i32, eps: f32) -> Read<GroupNorm> {
        if channels % groups != 0 {
            let reason = format!("{channels} channels are no {groups} groups of one size");
            return Err(crate::error::Error::model(reason));
        }
        let part = |name: &str| w.tensor_f32(name, &[channels]);
        let computes = w.kernels();
        Ok(GroupNorm { weight: part("weight")?, bias: part("bias")?, groups, eps, computes })
    }

    fn compute(&self, x: &Array, silu: bool) -> Result<Array> {
        let GroupNorm { weight, bias, groups, eps, computes } = self;
        let after = if silu { AfterNorm::Silu } else { AfterNorm::Nothing };
        computes.group_norm(x, ChannelGroups { weight, bias, groups: *groups, eps: *eps, after })
    }
}

impl Norm for GroupNorm {
    fn forward(&self, x: &Array) -> Result<Array> {
        self.compute(x, false)
    }

    fn with_silu(&self, x: &Array) -> Result<Array> {
        self.compute(x, true)
    }
}

/// Each pixel four times: `[1, height, width, channels]` to twice the height and width.
///
/// # Errors
/// Those of MLX.
pub(super) fn doubled(x: &Array) -> Result<Array> {
    let [n, height, width, channels] = x.dims()?;
    let x = ops::reshape(x, &[n, height, 1, width, 1, channels])?;
    let x = ops::broadcast_to(&x, &[n, height, 2, width, 2, channels])?;
    ops::reshape(&x, &[n, 2 * height, 2 * width, channels])
}

/// The embedding of a time, `[1, size]` F32: cosines, then sines, of `time · 10000^(-i / (size /
/// 2))`.
///
/// # Errors
/// Those of MLX.
pub(super) fn time_embedding(time: f32, size: i32) -> Result<Array> {
    let half = size / 2;
    let rate = |i: i32| (-(10_000f32.ln()) * i as f32 / half as f32).exp();
    let angles: Vec<f64> = (0..half).map(|i| f64::from(time * rate(i))).collect();
    let values = angles.iter().map(|a| a.cos()).chain(angles.iter().map(|a| a.sin()));
    Array::from_f32(&values.map(|value| value as f32).collect::<Vec<_>>(), &[1, size])
}

/// `second(silu(first(x)))`.
///
/// # Errors
/// Those of MLX.
pub(super) fn silu_between(first: &Linear, second: &Linear, x: &Array) -> Result<Array> {
    second.forward(&silu(&first.forward(x)?)?)
}

/// `1 + x`.
///
/// # Errors
/// Those of MLX.
pub(super) fn one_more(x: &Array) -> Result<Array> {
    ops::add(x, &Array::scalar(1.0, x.dtype())?)
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Device, use_device};

    use super::*;

    #[test]
    fn a_group_norm_has_mean_and_variance_of_its_weights_in_each_group() {
        use_device(Device::Cpu).expect("a CPU");
        let values: Vec<f32> = (0..3 * 5 * 4).map(|i| (0.7 * i as f32).sin() + 3.0).collect();
        let x = Array::from_f32(&values, &[1, 3, 5, 4]).expect("a picture");
        let weight = Array::from_f32(&[1.0, 2.0, 3.0, 4.0], &[4]).expect("weights");
        let bias = Array::from_f32(&[0.5, 0.0, -0.5, 1.0], &[4]).expect("biases");
        for computes in [Kernels::Mlx, Kernels::CPU] {
            let (weight, bias) = (weight.share().expect("weights"), bias.share().expect("biases"));
            let norm = GroupNorm { weight, bias, groups: 2, eps: 1e-6, computes };
            let plain = norm.forward(&x).expect("a picture").to_vec_f32().expect("values");
            let silu = norm.with_silu(&x).expect("a picture").to_vec_f32().expect("values");
            for group in 0..2 {
                let of = |i: &usize| i % 4 / 2 == group;
                let members: Vec<f64> = (0..60).filter(of).map(|i| f64::from(values[i])).collect();
                let mean = members.iter().sum::<f64>() / 30.0;
                let variance = members.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 30.0;
                for i in (0..60).filter(of) {
                    let normed = (f64::from(values[i]) - mean) / (variance + 1e-6).sqrt();
                    let expected = normed * (i % 4 + 1) as f64 + [0.5, 0.0, -0.5, 1.0][i % 4];
                    assert!((f64::from(plain[i]) - expected).abs() < 1e-4, "{i}: {}", plain[i]);
                    let expected = expected / (1.0 + (-expected).exp());
                    assert!((f64::from(silu[i]) - expected).abs() < 1e-4, "{i}: {}", silu[i]);
                }
            }
        }
    }

    #[test]
    fn a_doubled_picture_has_each_pixel_four_times() {
        use_device(Device::Cpu).expect("a CPU");
        let x = Array::from_f32(&[1.0, 2.0, 3.0, 4.0], &[1, 2, 2, 1]).expect("a picture");
        let y = doubled(&x).expect("a picture");
        assert_eq!(y.shape(), [1, 4, 4, 1]);
        let rows = [[1.0, 1.0, 2.0, 2.0]; 2].into_iter().chain([[3.0, 3.0, 4.0, 4.0]; 2]);
        assert_eq!(y.to_vec_f32().expect("values"), rows.flatten().collect::<Vec<f32>>());
    }
}
