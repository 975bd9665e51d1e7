//! The features of Parakeet: log-mel spectrograms whose bands have a mean of 0 and a deviation of
//! 1, as transformers makes them (`ParakeetFeatureExtractor`).

use std::f64::consts::PI;

use realfft::RealFftPlanner;
use realfft::num_complex::Complex;

use crate::log_mel::Frames;
use crate::mel::MelError;
use crate::mel::filters;

/// The number that is added before a logarithm.
const GUARD: f64 = 1.0 / 16_777_216.0;

/// The number that is added to a deviation.
const EPSILON: f64 = 1e-5;

/// How a normalised log-mel spectrogram is made, with the values of the feature extractor's config.
///
/// ```
/// use sound::NormalizedMel;
///
/// let frames = NormalizedMel::default().frames(&[0.1; 16_000])?;
/// assert_eq!((frames.bands, frames.count), (80, 100));
/// # Ok::<(), sound::MelError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormalizedMel {
    /// `feature_size`, the bands: 1 to 1,024. Default: 80.
    pub features: usize,
    /// `sampling_rate`: 1,000 to 384,000. Default: 16,000.
    pub rate: u32,
    /// `n_fft`, the samples of a transform: an even number from 2 to 65,536. Default: 512.
    pub fft: usize,
    /// `win_length`, the samples under the window, in the middle of those: 2 to `fft`. Default:
    /// 400.
    pub window: usize,
    /// `hop_length`: 1 to 65,536. Default: 160.
    pub hop: usize,
    /// `preemphasis`: this part of each sample is taken away from the next one. Default: 0.97.
    pub preemphasis: f32,
}

impl Default for NormalizedMel {
    fn default() -> Self {
        Self { features: 80, rate: 16_000, fft: 512, window: 400, hop: 160, preemphasis: 0.97 }
    }
}

impl NormalizedMel {
    /// Checks each value.
    ///
    /// # Errors
    /// The first value that is out of its range.
    pub fn validate(&self) -> Result<(), MelError> {
        let fft = (2..=65_536).contains(&self.fft) && self.fft.is_multiple_of(2);
        let rate = self.rate as usize;
        let window = (2..=self.fft).contains(&self.window);
        let checks = [
            ("feature_size", self.features, (1..=1_024).contains(&self.features), "1 to 1024"),
            ("n_fft", self.fft, fft, "an even number from 2 to 65536"),
            ("win_length", self.window, window, "2 to `n_fft`"),
            ("hop_length", self.hop, (1..=65_536).contains(&self.hop), "1 to 65536"),
            ("sampling_rate", rate, (1_000..=384_000).contains(&rate), "1000 to 384000"),
        ];
        match checks.into_iter().find(|(_, _, holds, _)| !holds) {
            Some((name, found, _, expected)) => Err(MelError::Value { name, found, expected }),
            None => Ok(()),
        }
    }

    /// Features of the samples, a frame for each whole hop.
    ///
    /// # Errors
    /// When a value is out of its range, or there are fewer than two hops: a deviation needs two
    /// frames.
    pub fn frames(&self, samples: &[f32]) -> Result<Frames, MelError> {
        self.validate()?;
        let (count, least) = (samples.len() / self.hop, 2 * self.hop);
        if count < 2 {
            return Err(MelError::TooShort { samples: samples.len(), least });
        }
        // In f32, as the reference has it: what a window leaks is heard in quiet bands.
        let step = (2.0 * PI / (self.window - 1) as f64) as f32;
        let hann = |at: usize| 0.5 - 0.5 * (at as f32 * step).cos();
        let window: Vec<f32> = (0..self.window).map(hann).collect();
        let bands = filters::slaney(self.features, self.fft / 2 + 1, self.rate);
        let fft = RealFftPlanner::<f64>::new().plan_fft_forward(self.fft);
        let (mut frame, mut spectrum) = (fft.make_input_vec(), fft.make_output_vec());
        let mut scratch = fft.make_scratch_vec();
        let mut power = vec![0.0; spectrum.len()];
        let mut values = Vec::with_capacity(count * self.features);
        for at in 0..count {
            self.take(samples, at, &window, &mut frame);
            fft.process_with_scratch(&mut frame, &mut spectrum, &mut scratch)
                .expect("the buffers are those that the transform made");
            for (power, value) in power.iter_mut().zip(&spectrum) {
                *power = Complex::norm_sqr(value) as f32;
            }
            let logarithm = |power: f32| (f64::from(power) + GUARD).ln() as f32;
            values.extend(bands.iter().map(|band| logarithm(band.sum(&power))));
        }
        for band in 0..self.features {
            let of_band = || values.iter().skip(band).step_by(self.features);
            let mean = of_band().map(|value| f64::from(*value)).sum::<f64>() / count as f64;
            let squares = of_band().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>();
            let deviation = (squares / (count - 1) as f64).sqrt() + EPSILON;
            for value in values.iter_mut().skip(band).step_by(self.features) {
                *value = ((f64::from(*value) - mean) / deviation) as f32;
            }
        }
        Ok(Frames { values, bands: self.features, count })
    }

    /// Copies a frame, whose middle is at its hop, under its window. Outside of the samples there
    /// are zeros.
    fn take(&self, samples: &[f32], at: usize, window: &[f32], frame: &mut [f64]) {
        let sample = |place: usize| match place {
            0 => samples[0],
            _ => samples[place] - self.preemphasis * samples[place - 1],
        };
        frame.fill(0.0);
        let first = (self.fft - self.window) / 2;
        for (offset, weight) in window.iter().enumerate() {
            let place = (at * self.hop + first + offset).checked_sub(self.fft / 2);
            if let Some(place) = place.filter(|place| *place < samples.len()) {
                frame[first + offset] = f64::from(sample(place) * weight);
            }
        }
    }
}
