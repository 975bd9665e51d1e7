//! Rotary position encoding with the scalings that checkpoints use.

use std::f64::consts::PI;
use std::rc::Rc;

use mlx_ffi::fast::{RopeFrequencies, RopeOffset, RopeRange};
use mlx_ffi::{Array, Result, fast, ops, step};

use super::{Positions, Rotation};
use crate::cache::RopeFactors;
use crate::config::{RopeConfig, RopePairs, RopeScaling};

/// Rotates queries and keys by their positions.
#[derive(Debug)]
pub(crate) struct Rope {
    dims: i32,
    pairs: RopePairs,
    frequencies: Frequencies,
    /// The frequencies of [`RopeFactors::Long`], and the longest sequence that has the others.
    long: Option<(Frequencies, i32)>,
    /// The factor of positions.
    scale: f32,
    /// The factor of the values to be rotated, a scalar.
    attention_factor: Option<f32>,
    /// Which of a picture's three positions turns each pair.
    axes: Option<Rc<[u8]>>,
}

#[derive(Debug)]
struct Frequencies {
    /// As MLX takes them.
    given: Given,
    /// Inverse frequencies: radians for each position, one for each pair of dimensions.
    inv_freq: Rc<[f32]>,
    /// `inv_freq` on the device.
    on_device: Array,
}

#[derive(Debug)]
enum Given {
    /// Wavelengths that are powers of it.
    Base(f32),
    /// `[dims / 2]`, in radians.
    Wavelengths(Array),
}

impl Frequencies {
    fn powers(dims: i32, base: f64) -> Result<Frequencies> {
        let inv_freq = base_wavelengths(dims, base).map(|wavelength| wavelength.recip() as f32);
        Frequencies::new(Given::Base(base as f32), inv_freq.collect())
    }

    fn new(given: Given, inv_freq: Rc<[f32]>) -> Result<Frequencies> {
        let on_device = Array::from_f32(&inv_freq, &[inv_freq.len() as i32])?;
        Ok(Frequencies { given, inv_freq, on_device })
    }

    fn of(wavelengths: impl Iterator<Item = f64>) -> Result<Frequencies> {
        let wavelengths: Vec<f32> = wavelengths.map(|value| value as f32).collect();
        let inv_freq = wavelengths.iter().map(|wavelength| wavelength.recip()).collect();
        let array = Array::from_f32(&wavelengths, &[wavelengths.len() as i32])?;
        Frequencies::new(Given::Wavelengths(array), inv_freq)
    }
}

impl Rope {
    /// An encoding of the first `dims` values of each head.
    pub fn new(dims: i32, config: &RopeConfig) -> Result<Rope> {
        let axes = config.sections.as_ref().map(|sections| sections.axes(dims / 2));
        Ok(Rope { pairs: config.pairs, axes, ..Rope::of_halves(dims, config)? })
    }

    fn of_halves(dims: i32, config: &RopeConfig) -> Result<Rope> {
        let theta = config.theta;
        let plain = |scale: f64| {
            let rope = Rope::with_frequencies(dims, Frequencies::powers(dims, theta)?);
            Ok(Rope { scale: scale as f32, ..rope })
        };
        match config.scaling {
            RopeScaling::None => plain(1.0),
            RopeScaling::Linear { factor } => plain(1.0 / factor),
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
            RopeScaling::Proportional { part, factor } => {
                let turning = (part * f64::from(dims) / 2.0).floor() as usize;
                // A pair whose wavelength has no end stays as it is.
                let stretch = |(index, wavelength)| match index < turning {
                    true => wavelength * factor,
                    false => f64::INFINITY,
                };
                let wavelengths = base_wavelengths(dims, theta).enumerate().map(stretch);
                Rope::with_wavelengths(dims, wavelengths, 1.0)
            }
            RopeScaling::Long {
                ref short_factor,
                ref long_factor,
                original_max_position_embeddings: original,
                attention_factor,
            } => {
                let stretched = |factors: &[f64]| {
                    let pairs = base_wavelengths(dims, theta).zip(factors.to_vec());
                    pairs.map(|(freq, factor)| freq * factor)
                };
                let factor = attention_factor as f32;
                let short = Rope::with_wavelengths(dims, stretched(short_factor), factor)?;
                let frequencies = Frequencies::of(stretched(long_factor))?;
                Ok(Rope { long: Some((frequencies, original)), ..short })
            }
        }
    }

    fn with_wavelengths(
        dims: i32,
        wavelengths: impl Iterator<Item = f64>,
        attention_factor: f32,
    ) -> Result<Rope> {
        let rope = Rope::with_frequencies(dims, Frequencies::of(wavelengths)?);
        let attention_factor = (attention_factor != 1.0).then_some(attention_factor);
        Ok(Rope { attention_factor, ..rope })
    }

    fn with_frequencies(dims: i32, frequencies: Frequencies) -> Rope {
        let (pairs, scale) = (RopePairs::Halves, 1.0);
        Rope { dims, pairs, frequencies, long: None, scale, attention_factor: None, axes: None }
    }

    /// Which values are rotated together.
    pub fn pairs(&self) -> RopePairs {
        self.pairs
    }

    /// Returns true when neighbouring values are rotated together; otherwise those of the halves
    /// are.
    pub fn turns_neighbours(&self) -> bool {
        self.pairs == RopePairs::Neighbours
    }

    /// The longest sequence whose positions have [`RopeFactors::Short`], where longer ones have
    /// others.
    pub fn original_context(&self) -> Option<i32> {
        self.long.as_ref().map(|(_, original)| *original)
    }

    fn frequencies(&self, factors: RopeFactors) -> &Frequencies {
        match &self.long {
            Some((long, _)) if factors == RopeFactors::Long => long,
            _ => &self.frequencies,
        }
    }

    /// The rotation of sequences with these factors, as the kernel of a step takes it.
    pub fn on_device(&self, factors: RopeFactors) -> step::Turn<'_> {
        let (scale, magnitude) = (self.scale, self.attention_factor.unwrap_or(1.0));
        step::Turn { radians: &self.frequencies(factors).on_device, scale, magnitude }
    }

    /// The rotation of sequences with these factors.
    pub fn rotation(&self, factors: RopeFactors) -> Rotation {
        let inv_freq = Rc::clone(&self.frequencies(factors).inv_freq);
        let attention_factor = self.attention_factor.unwrap_or(1.0);
        Rotation { inv_freq, scale: self.scale, attention_factor, axes: self.axes.clone() }
    }

    /// `x`, `[1, n, l, head_dim]`, whose halves are rotated by positions that were given.
    fn turned(&self, x: &Array, positions: &mut Positions) -> Result<Array> {
        if self.pairs != RopePairs::Halves {
            return Err(mlx_ffi::Error::new("neighbours have one position each"));
        }
        let [_, _, l, head_dim] = x.dims()?;
        let half = self.dims / 2;
        let turns = positions.cos_sin(self.rotation(positions.rope_factors()), l)?;
        let part = |array: &Array, first: i32, end: i32| ops::slice_axis(array, -1, first, end);
        // [1, l, half], for all heads.
        let (cos, sin) = (part(&turns, 0, half)?, part(&turns, half, 2 * half)?);
        let wide = ops::astype(x, mlx_ffi::Dtype::F32)?;
        let (low, high) = (part(&wide, 0, half)?, part(&wide, half, 2 * half)?);
        let times = |a: &Array, b: &Array| ops::multiply(a, b);
        let turned_low = ops::subtract(&times(&low, &cos)?, &times(&high, &sin)?)?;
        let turned_high = ops::add(&times(&high, &cos)?, &times(&low, &sin)?)?;
        let mut parts = vec![turned_low, turned_high];
        if head_dim > self.dims {
            parts.push(part(&wide, self.dims, head_dim)?);
        }
        let turned = ops::concatenate(&parts.iter().collect::<Vec<_>>(), -1)?;
        ops::astype(&turned, x.dtype())
    }

    /// `x`, `[b, n, l, head_dim]`, at these positions.
    pub fn forward(&self, x: &Array, positions: &mut Positions) -> Result<Array> {
        if positions.are_given() {
            return self.turned(x, positions);
        }
        let frequencies = match &self.frequencies(positions.rope_factors()).given {
            Given::Base(base) => RopeFrequencies::Base(*base),
            Given::Wavelengths(values) => RopeFrequencies::Wavelengths(values),
        };
        let offset = match positions.each()? {
            Some(offsets) => RopeOffset::Each(offsets),
            None => RopeOffset::Same(positions.offsets().first().copied().unwrap_or(0)),
        };
        let range = match self.pairs {
            RopePairs::Halves => RopeRange::Halves(self.dims),
            RopePairs::Neighbours => RopeRange::Neighbours(self.dims),
        };
        let Some(attention_factor) = self.attention_factor else {
            return fast::rope(x, range, frequencies, self.scale, offset);
        };
        let attention_factor = Array::scalar(attention_factor, x.dtype())?;
        let head_dim = x.shape().last().copied().unwrap_or(self.dims);
        // Before the rotation, as mlx-lm rounds it.
        let turning = ops::multiply(&ops::slice_axis(x, -1, 0, self.dims)?, &attention_factor)?;
        let turned = fast::rope(&turning, range, frequencies, self.scale, offset)?;
        if head_dim == self.dims {
            return Ok(turned);
        }
        // What is not rotated keeps its size.
        ops::concatenate(&[&turned, &ops::slice_axis(x, -1, self.dims, head_dim)?], -1)
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
    fn check(scaling: &str, wavelengths: [f64; 8], attention_factor: f64) {
        let legacy = format!(
            r#"{{"rope_theta": 10000.0, "max_position_embeddings": 1024, "rope_scaling": {{{scaling}}}}}"#
        );
        let nested = format!(
            r#"{{"max_position_embeddings": 1024, "rope_parameters": {{"rope_theta": 10000.0, {scaling}}}}}"#
        );
        for text in [legacy, nested] {
            let config = Config::parse("config.json", &text).unwrap();
            let rope = Rope::new(16, &config.rope("full_attention", 5.0).unwrap()).unwrap();
            let found: Vec<f64> = match &rope.frequencies.given {
                Given::Base(base) => base_wavelengths(16, f64::from(*base))
                    .map(|value| value / f64::from(rope.scale))
                    .collect(),
                Given::Wavelengths(values) => {
                    assert_eq!(rope.scale, 1.0);
                    values.to_vec_f32().unwrap().into_iter().map(f64::from).collect()
                }
            };
            let mut turns = Vec::new();
            rope.rotation(RopeFactors::Short).push_cos_sin(3, &mut turns);
            for (found, wavelength) in turns.iter().zip(&wavelengths) {
                let expected = (3.0 / wavelength).cos() * attention_factor;
                assert!((f64::from(*found) - expected).abs() < 1e-5, "{found}, not {expected}");
            }
            let near = |(a, b): (&f64, &f64)| (a / b - 1.0).abs() < 1e-5;
            assert!(found.iter().zip(&wavelengths).all(near), "{found:?}");
            assert!(
                (f64::from(rope.attention_factor.unwrap_or(1.0)) - attention_factor).abs() < 1e-6
            );
        }
    }

    #[test]
    fn linear_scaling_is_that_of_transformers() {
        let stretched = [8.0, 25.2982, 80.0, 252.982, 800.0, 2529.82, 8000.0, 25298.2];
        check(r#""rope_type": "linear", "factor": 8.0"#, stretched, 1.0);
        check(r#""type": "linear", "factor": 8"#, stretched, 1.0);
    }

    #[test]
    fn proportional_scaling_turns_the_first_pairs_of_the_whole_head() {
        let text = r#"{"rope_parameters": {"full_attention": {"rope_theta": 10000.0,
            "rope_type": "proportional", "partial_rotary_factor": 0.25, "factor": 2.0}}}"#;
        let config = Config::parse("config.json", text).unwrap();
        let rope = Rope::new(16, &config.rope("full_attention", 5.0).unwrap()).unwrap();
        let found = &rope.rotation(RopeFactors::Short).inv_freq;
        let expected = [0.5, 0.5 * 10_000_f32.powf(-2.0 / 16.0), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
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
    fn the_attention_factor_of_yarn_is_that_of_transformers() {
        check(&format!(r#"{YARN}, "attention_factor": 1.5"#), YARN_WAVELENGTHS, 1.5);
        let both = format!(r#"{YARN}, "mscale": 0.7, "mscale_all_dim": 1.0"#);
        check(&both, YARN_WAVELENGTHS, 0.9634747);
        // One of the two alone does not count.
        check(&format!(r#"{YARN}, "mscale": 0.7"#), YARN_WAVELENGTHS, 1.1386294);
    }

    #[test]
    fn longrope_is_that_of_transformers() {
        let scaling = r#""rope_type": "longrope", "original_max_position_embeddings": 256,
            "short_factor": [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
            "long_factor": [1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5]"#;
        let short = [1.0, 3.47851, 12.0, 41.1096, 140.0, 474.342, 1600.0, 5375.87];
        check(scaling, short, 1.118_034);
        let text = format!(r#"{{"max_position_embeddings": 1024, "rope_scaling": {{{scaling}}}}}"#);
        let config = Config::parse("config.json", &text).unwrap();
        let rope = Rope::new(16, &config.rope("full_attention", 1e4).unwrap()).unwrap();
        assert_eq!(rope.original_context(), Some(256));
        let (long, _) = rope.long.as_ref().unwrap();
        let expected: [f64; 8] = [1.0, 4.74342, 20.0, 79.0569, 300.0, 1106.8, 4000.0, 14230.2];
        for (found, expected) in long.inv_freq.iter().zip(expected) {
            assert!((f64::from(*found) * expected - 1.0).abs() < 1e-5, "{found} {expected}");
        }
    }
}
