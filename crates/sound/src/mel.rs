//! The features of Whisper: log-mel spectrograms as transformers makes them
//! (`WhisperFeatureExtractor._torch_extract_fbank_features`).

pub(crate) mod filters;

use std::f64::consts::PI;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

use self::filters::Band;

/// Frames that a thread computes at a time.
const BLOCK: usize = 1_024;

/// Most threads.
const MOST_THREADS: usize = 4;

/// The smallest power, before its logarithm.
const FLOOR: f32 = 1e-10;

/// How a log-mel spectrogram is made, with the values of `preprocessor_config.json`.
///
/// ```
/// use sound::Mel;
///
/// let features = Mel { features: 128, ..Mel::default() }.padded(&[0.0; 16_000], 480_000)?;
/// assert_eq!((features.bands, features.frames), (128, 3_000));
/// # Ok::<(), sound::MelError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mel {
    /// `feature_size`, the bands: 1 to 1,024. Default: 80.
    pub features: usize,
    /// `n_fft`, the samples of a frame: an even number from 2 to 65,536. Default: 400.
    pub fft: usize,
    /// `hop_length`, the samples from one frame to the next: 1 to 65,536. Default: 160.
    pub hop: usize,
    /// `sampling_rate`: 1,000 to 384,000. Default: 16,000.
    pub rate: u32,
}

impl Default for Mel {
    fn default() -> Self {
        Self { features: 80, fft: 400, hop: 160, rate: 16_000 }
    }
}

/// A log-mel spectrogram.
#[derive(Debug, Clone, PartialEq)]
pub struct Features {
    /// The values, `[bands][frames]`.
    pub values: Vec<f32>,
    /// Bands of the mel scale.
    pub bands: usize,
    /// Frames, one for each hop.
    pub frames: usize,
}

/// Why there are no features.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MelError {
    /// A value that is none of its kind.
    #[error("`{name}` is {found}, expected {expected}")]
    Value {
        /// The key in `preprocessor_config.json`.
        name: &'static str,
        /// The value.
        found: usize,
        /// The values that are taken.
        expected: &'static str,
    },
    /// Frequencies that bound no bands.
    #[error(
        "`min_frequency` is {lowest} and `max_frequency` {highest}, expected a lower and a higher \
         one, up to half of `sampling_rate`, {half}"
    )]
    Frequencies {
        /// The lowest one.
        lowest: u32,
        /// The highest one.
        highest: u32,
        /// The highest one that there may be.
        half: u32,
    },
    /// Too few samples for one frame, or to reflect them at both ends.
    #[error("the sound has {samples} samples, and features need at least {least}: pad it")]
    TooShort {
        /// The samples.
        samples: usize,
        /// The fewest that are taken.
        least: usize,
    },
}

impl Mel {
    /// Checks each value.
    ///
    /// # Errors
    /// The first value that is out of its range.
    pub fn validate(&self) -> Result<(), MelError> {
        let fft = (2..=65_536).contains(&self.fft) && self.fft.is_multiple_of(2);
        let rate = self.rate as usize;
        let checks = [
            ("feature_size", self.features, (1..=1_024).contains(&self.features), "1 to 1024"),
            ("n_fft", self.fft, fft, "an even number from 2 to 65536"),
            ("hop_length", self.hop, (1..=65_536).contains(&self.hop), "1 to 65536"),
            ("sampling_rate", rate, (1_000..=384_000).contains(&rate), "1000 to 384000"),
        ];
        match checks.into_iter().find(|(_, _, holds, _)| !holds) {
            Some((name, found, _, expected)) => Err(MelError::Value { name, found, expected }),
            None => Ok(()),
        }
    }

    /// Features of the samples, as many frames as there are whole hops. The loudest value of all
    /// bounds the quietest.
    ///
    /// # Errors
    /// When a value is out of its range, or there are too few samples: half of a frame and one
    /// more, or a hop.
    pub fn features(&self, samples: &[f32]) -> Result<Features, MelError> {
        self.validate()?;
        let least = (self.fft / 2 + 1).max(self.hop);
        if samples.len() < least {
            return Err(MelError::TooShort { samples: samples.len(), least });
        }
        Ok(Spectrogram::new(self).features(samples))
    }

    /// Features of the samples, cut off at `length` samples or padded with silence to it.
    ///
    /// # Errors
    /// Those of [`Self::features`].
    pub fn padded(&self, samples: &[f32], length: usize) -> Result<Features, MelError> {
        let mut padded = samples[..samples.len().min(length)].to_vec();
        padded.resize(length, 0.0);
        self.features(&padded)
    }
}

/// All that is the same for each frame.
struct Spectrogram {
    hop: usize,
    window: Vec<f32>,
    bands: Vec<Band>,
    fft: Arc<dyn RealToComplex<f32>>,
}

impl Spectrogram {
    fn new(mel: &Mel) -> Self {
        let hann = |at: usize| 0.5 - 0.5 * (2.0 * PI * at as f64 / mel.fft as f64).cos();
        Self {
            hop: mel.hop,
            window: (0..mel.fft).map(|at| hann(at) as f32).collect(),
            bands: filters::slaney(mel.features, mel.fft / 2 + 1, mel.rate),
            fft: RealFftPlanner::new().plan_fft_forward(mel.fft),
        }
    }

    fn features(&self, samples: &[f32]) -> Features {
        let (bands, frames) = (self.bands.len(), samples.len() / self.hop);
        let mut values = vec![0.0; bands * frames];
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
        // The logarithms of some blocks, `[frames][bands]`.
        let mut blocks = vec![0.0; bands * frames.min(threads * BLOCK)];
        let mut loudest = f32::NEG_INFINITY;
        for begin in (0..frames).step_by(threads * BLOCK) {
            let count = (frames - begin).min(threads * BLOCK);
            let blocks = &mut blocks[..count * bands];
            self.logarithms(samples, begin, blocks);
            for (frame, logarithms) in blocks.chunks_exact(bands).enumerate() {
                for (band, logarithm) in logarithms.iter().enumerate() {
                    loudest = loudest.max(*logarithm);
                    values[band * frames + begin + frame] = *logarithm;
                }
            }
        }
        for value in &mut values {
            *value = (value.max(loudest - 8.0) + 4.0) / 4.0;
        }
        Features { values, bands, frames }
    }

    /// Fills `[frames][bands]` from the frame `begin` on, each block by a thread of its own.
    fn logarithms(&self, samples: &[f32], begin: usize, values: &mut [f32]) {
        let block = BLOCK * self.bands.len();
        if values.len() <= block {
            return self.block(samples, begin, values);
        }
        thread::scope(|scope| {
            for (at, values) in values.chunks_mut(block).enumerate() {
                scope.spawn(move || self.block(samples, begin + at * BLOCK, values));
            }
        });
    }

    fn block(&self, samples: &[f32], begin: usize, values: &mut [f32]) {
        let mut frame = self.fft.make_input_vec();
        let mut spectrum = self.fft.make_output_vec();
        let mut scratch = self.fft.make_scratch_vec();
        let mut power = vec![0.0; spectrum.len()];
        for (at, values) in values.chunks_exact_mut(self.bands.len()).enumerate() {
            self.frame(samples, begin + at, &mut frame);
            self.fft
                .process_with_scratch(&mut frame, &mut spectrum, &mut scratch)
                .expect("the buffers are those that the transform made");
            for (power, value) in power.iter_mut().zip(&spectrum) {
                *power = Complex::norm_sqr(value);
            }
            for (value, band) in values.iter_mut().zip(&self.bands) {
                *value = band.sum(&power).max(FLOOR).log10();
            }
        }
    }

    /// Copies a frame under its window. Its middle is at the frame's hop, and what lies outside of
    /// the samples is reflected.
    fn frame(&self, samples: &[f32], at: usize, frame: &mut [f32]) {
        let half = frame.len() / 2;
        let middle = at * self.hop;
        if middle >= half && middle + half <= samples.len() {
            let inside = &samples[middle - half..middle + half];
            for ((value, sample), weight) in frame.iter_mut().zip(inside).zip(&self.window) {
                *value = sample * weight;
            }
            return;
        }
        for (offset, (value, weight)) in frame.iter_mut().zip(&self.window).enumerate() {
            let place = (middle + offset).abs_diff(half);
            let last = samples.len() - 1;
            let place = if place > last { 2 * last - place } else { place };
            *value = samples[place] * weight;
        }
    }
}
