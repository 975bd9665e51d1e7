//! The entry of an audio tower: two convolutions that take every second frame and band each.

use mlx_ffi::ops::{Cumulative, Padding};
use mlx_ffi::{Array, Dtype, Result, ops};
use sound::Frames;

use crate::kernels::{Activation, Kernels};
use crate::layers::{LayerNorm, Linear};

/// Makes a vector of each four frames.
#[derive(Debug)]
pub(crate) struct EarEntry {
    pub convolutions: [EarConvolution; 2],
    /// Of all bands and channels of a place to `hidden_size`.
    pub projection: Linear,
    /// Bands of a frame.
    pub bands: i32,
    pub dtype: Dtype,
    pub kernels: Kernels,
}

/// A convolution over frames and bands with a stride of 2, normed, without what is below 0.
#[derive(Debug)]
pub(crate) struct EarConvolution {
    /// `[out, 3, 3, channels]`.
    pub kernel: Array,
    pub padding: Padding,
    pub norm: EarNorm,
}

/// The norm behind a convolution.
#[derive(Debug)]
pub(crate) enum EarNorm {
    /// Over the channels of each frame and band.
    Layer(LayerNorm),
    /// Over all values of the frames so far, times a weight of each channel, F32 (Gemma 3n).
    Cumulative { weight: Array, eps: f32 },
}

impl EarNorm {
    /// `[1, frames, bands, channels]` to the same.
    fn forward(&self, x: &Array) -> Result<Array> {
        let (weight, eps) = match self {
            EarNorm::Layer(norm) => return norm.forward(x),
            EarNorm::Cumulative { weight, eps } => (weight, *eps),
        };
        let (dtype, x) = (x.dtype(), ops::astype(x, Dtype::F32)?);
        let [_, frames, bands, channels] = x.dims()?;
        let counts: Vec<f32> = (1..=frames).map(|n| (n * bands * channels) as f32).collect();
        let counts = Array::from_f32(&counts, &[1, frames, 1, 1])?;
        let so_far = |x: &Array| -> Result<Array> {
            let of_frame = ops::sum(&ops::sum(x, 3, true)?, 2, true)?;
            ops::divide(&ops::cumsum(&of_frame, 1, Cumulative::Forward)?, &counts)
        };
        let away = ops::subtract(&x, &so_far(&x)?)?;
        let variance = so_far(&ops::multiply(&away, &away)?)?;
        let root = ops::sqrt(&ops::add(&variance, &Array::scalar(eps, Dtype::F32)?)?)?;
        ops::astype(&ops::multiply(&ops::divide(&away, &root)?, weight)?, dtype)
    }
}

impl EarEntry {
    /// The vectors of a sound, `[1, n, hidden_size]`.
    pub fn forward(&self, frames: &Frames) -> Result<Array> {
        let shape = [1, frames.count as i32, frames.bands as i32, 1];
        let mut x = ops::astype(&Array::passing_f32(&frames.values, &shape)?, self.dtype)?;
        for convolution in &self.convolutions {
            let EarConvolution { kernel, padding, norm } = convolution;
            let wide = ops::conv2d(&x, kernel, 2, *padding)?;
            x = self.kernels.activated(Activation::Relu, &norm.forward(&wide)?)?;
        }
        let [_, n, bands, channels] = x.dims()?;
        self.projection.forward(&ops::reshape(&x, &[1, n, bands * channels])?)
    }

    /// The most values that are held at once for so many frames. A convolution may gather its
    /// inputs, nine for each output.
    pub fn values(&self, frames: u64) -> u64 {
        let channels = |at: usize| {
            let first = self.convolutions[at].kernel.shape().first();
            first.copied().unwrap_or(1).max(1) as u64
        };
        let (first, second) = (channels(0), channels(1));
        let bands = self.bands as u64;
        let (half, quarter) = (frames.div_ceil(2) * bands / 2, frames.div_ceil(4) * bands / 4);
        let first_step = frames * bands + half * (9 + 3 * first);
        first_step.max(half * first + quarter * (9 * first + 3 * second))
    }
}
