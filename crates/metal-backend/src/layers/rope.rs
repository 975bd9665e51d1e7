//! Rotary position encoding with the scalings that checkpoints use.

use std::f64::consts::PI;

use mlx_ffi::fast::RopeFrequencies;
use mlx_ffi::{Array, Result, cpu, fast, ops};

use super::Product;
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
    product: Product,
}

#[derive(Debug)]
enum Frequencies {
    Base(f32),
    /// `[dims / 2]`.
    Wavelengths(Array),
}

impl Rope {
    /// An encoding of the first `dims` values of each head.
    pub fn new(dims: i32, config: &RopeConfig, product: Product) -> Result<Rope> {
        let theta = config.theta;
        let plain = |scale: f64| Rope {
            dims,
            frequencies: Frequencies::Base(theta as f32),
            scale: scale as f32,
            magnitude: None,
            product,
        };
        let with_wavelengths = |lengths: &mut dyn Iterator<Item = f64>, magnitude: f64| {
            let rope = Rope::with_wavelengths(dims, lengths, magnitude as f32)?;
            Ok(Rope { product, ..rope })
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
                with_wavelengths(&mut base_wavelengths(dims, theta).map(stretch), 1.0)
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
                let mut wavelengths = base_wavelengths(dims, theta).enumerate().map(stretch);
                with_wavelengths(&mut wavelengths, attention_factor)
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
            product: Product::Mlx,
        })
    }

    /// `x`, `[b, n, l, head_dim]`, whose first position is `offset`.
    pub fn forward(&self, x: &Array, offset: i32) -> Result<Array> {
        let frequencies = match &self.frequencies {
            Frequencies::Base(base) => RopeFrequencies::Base(*base),
            Frequencies::Wavelengths(values) => RopeFrequencies::Wavelengths(values),
        };
        let rotated = match self.product {
            Product::Mlx => fast::rope(x, self.dims, frequencies, self.scale, offset)?,
            Product::CpuKernels => cpu::rope(x, self.dims, frequencies, self.scale, &[offset])?,
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// Checks `rope_scaling` and the same in `rope_parameters`, for a head of 16 values and a
    /// base of 10,000, against the wavelengths and the factor of transformers'
    /// `modeling_rope_utils`; `tests/fixtures/parity/scripts/literals.py` prints them.
    #[track_caller]
    fn check(scaling: &str, wavelengths: [f64; 8], magnitude: f64) {
        let legacy = format!(
            r#"{{"rope_theta": 10000.0, "max_position_embeddings": 1024, "rope_scaling": {{{scaling}}}}}"#
        );
        let nested = format!(
            r#"{{"max_position_embeddings": 1024, "rope_parameters": {{"rope_theta": 10000.0, {scaling}}}}}"#
        );
        for text in [legacy, nested] {
            let config = Config::parse("config.json", &text).unwrap();
            let rope =
                Rope::new(16, &config.rope("full_attention", 5.0).unwrap(), Product::Mlx).unwrap();
            let found: Vec<f64> = match &rope.frequencies {
                Frequencies::Base(base) => base_wavelengths(16, f64::from(*base))
                    .map(|value| value / f64::from(rope.scale))
                    .collect(),
                Frequencies::Wavelengths(values) => {
                    assert_eq!(rope.scale, 1.0);
                    values.to_vec_f32().unwrap().into_iter().map(f64::from).collect()
                }
            };
            let near = |(a, b): (&f64, &f64)| (a / b - 1.0).abs() < 1e-5;
            assert!(found.iter().zip(&wavelengths).all(near), "{found:?}");
            assert!((f64::from(rope.magnitude.unwrap_or(1.0)) - magnitude).abs() < 1e-6);
        }
    }

    #[test]
    fn linear_scaling_is_that_of_transformers() {
        let stretched = [8.0, 25.2982, 80.0, 252.982, 800.0, 2529.82, 8000.0, 25298.2];
        check(r#""rope_type": "linear", "factor": 8.0"#, stretched, 1.0);
        check(r#""type": "linear", "factor": 8"#, stretched, 1.0);
    }

    #[test]
    fn no_scaling_leaves_the_wavelengths() {
        let plain = [1.0, 3.16228, 10.0, 31.6228, 100.0, 316.228, 1000.0, 3162.28];
        check(r#""rope_type": "default""#, plain, 1.0);
    }

    #[test]
    fn llama3_scaling_is_that_of_transformers() {
        check(
            r#""rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64"#,
            [1.0, 4.09191, 76.6739, 252.982, 800.0, 2529.82, 8000.0, 25298.2],
            1.0,
        );
    }

    const YARN: &str =
        r#""rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256"#;
    const YARN_WAVELENGTHS: [f64; 8] =
        [1.0, 3.89203, 16.0, 72.2806, 400.0, 1264.91, 4000.0, 12649.1];

    #[test]
    fn yarn_is_that_of_transformers() {
        check(YARN, YARN_WAVELENGTHS, 1.1386294);
    }

    #[test]
    fn untruncated_yarn_is_that_of_transformers() {
        check(
            &format!(r#"{YARN}, "truncate": false"#),
            [1.0, 3.93744, 18.051, 103.735, 400.0, 1264.91, 4000.0, 12649.1],
            1.1386294,
        );
    }

    #[test]
    fn the_betas_of_yarn_are_those_of_transformers() {
        check(
            &format!(r#"{YARN}, "beta_fast": 16.0, "beta_slow": 2.0"#),
            [1.0, 4.21637, 20.0, 126.491, 400.0, 1264.91, 4000.0, 12649.1],
            1.1386294,
        );
    }

    #[test]
    fn the_magnitude_of_yarn_is_that_of_transformers() {
        check(&format!(r#"{YARN}, "attention_factor": 1.5"#), YARN_WAVELENGTHS, 1.5);
        let both = format!(r#"{YARN}, "mscale": 0.7, "mscale_all_dim": 1.0"#);
        check(&both, YARN_WAVELENGTHS, 0.9634747);
        // One of the two alone does not count.
        check(&format!(r#"{YARN}, "mscale": 0.7"#), YARN_WAVELENGTHS, 1.1386294);
    }
}
