//! Rotary position encoding with the scalings that checkpoints use.

use std::f64::consts::PI;

use mlx_ffi::fast::RopeFrequencies;
use mlx_ffi::{Array, Result, fast, ops};

use crate::config::{RopeConfig, RopeScaling};

/// Rotates queries and keys by their positions.
#[derive(Debug)]
pub(crate) struct Rope {
    dims: i32,
    frequencies: Frequencies,
    /// What positions are multiplied with.
    scale: f32,
    /// What the rotated values are multiplied with, a scalar.
    magnitude: Option<f32>,
}

#[derive(Debug)]
enum Frequencies {
    Base(f32),
    /// `[dims / 2]`.
    Wavelengths(Array),
}

impl Rope {
    /// An encoding of the first `dims` values of each head.
    pub fn new(dims: i32, config: &RopeConfig) -> Result<Rope> {
        let theta = config.theta;
        let plain = |scale: f64| Rope {
            dims,
            frequencies: Frequencies::Base(theta as f32),
            scale: scale as f32,
            magnitude: None,
        };
        match config.scaling {
            RopeScaling::None => Ok(plain(1.0)),
            RopeScaling::Linear { factor } => Ok(plain(1.0 / factor)),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings: original,
            } => {
                let stretch = |freq: f64| {
                    let wavelength = 2.0 * PI * freq;
                    if wavelength > original / low_freq_factor {
                        freq * factor
                    } else if wavelength < original / high_freq_factor {
                        freq
                    } else {
                        let smooth = (original / wavelength - low_freq_factor)
                            / (high_freq_factor - low_freq_factor);
                        freq / ((1.0 - smooth) / factor + smooth)
                    }
                };
                Rope::with_wavelengths(dims, base_wavelengths(dims, theta).map(stretch), 1.0)
            }
            RopeScaling::Yarn {
                factor,
                original_max_position_embeddings: original,
                beta_fast,
                beta_slow,
                attention_factor,
                truncate,
            } => {
                // The dimension that makes this many rotations over the original context.
                let dimension = |rotations: f64| {
                    f64::from(dims) * (original / (rotations * 2.0 * PI)).ln() / (2.0 * theta.ln())
                };
                let (mut low, mut high) = (dimension(beta_fast), dimension(beta_slow));
                if truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                low = low.max(0.0);
                high = high.min(f64::from(dims - 1));
                if low == high {
                    high += 0.001;
                }
                let stretch = |(index, freq): (usize, f64)| {
                    let ramp = ((index as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    // Interpolated in frequency, the inverse of the wavelength.
                    1.0 / (ramp / (factor * freq) + (1.0 - ramp) / freq)
                };
                let wavelengths = base_wavelengths(dims, theta).enumerate().map(stretch);
                Rope::with_wavelengths(dims, wavelengths, attention_factor as f32)
            }
        }
    }

    fn with_wavelengths(
        dims: i32,
        wavelengths: impl Iterator<Item = f64>,
        magnitude: f32,
    ) -> Result<Rope> {
        let values: Vec<f32> = wavelengths.map(|value| value as f32).collect();
        Ok(Rope {
            dims,
            frequencies: Frequencies::Wavelengths(Array::from_f32(&values, &[dims / 2])?),
            scale: 1.0,
            magnitude: (magnitude != 1.0).then_some(magnitude),
        })
    }

    /// `x`, `[b, n, l, head_dim]`, whose first position is `offset`.
    pub fn forward(&self, x: &Array, offset: i32) -> Result<Array> {
        let frequencies = match &self.frequencies {
            Frequencies::Base(base) => RopeFrequencies::Base(*base),
            Frequencies::Wavelengths(values) => RopeFrequencies::Wavelengths(values),
        };
        let rotated = fast::rope(x, self.dims, frequencies, self.scale, offset)?;
        match self.magnitude {
            None => Ok(rotated),
            Some(magnitude) => ops::multiply(&rotated, &Array::scalar(magnitude, rotated.dtype())?),
        }
    }
}

/// `theta^(2i / dims)` for each pair of dimensions.
fn base_wavelengths(dims: i32, theta: f64) -> impl Iterator<Item = f64> {
    (0..dims / 2).map(move |index| theta.powf(f64::from(2 * index) / f64::from(dims)))
}
