//! The features of Gemma's audio towers: logarithms of magnitudes in bands, frame by frame, as
//! transformers makes them (`Gemma4AudioFeatureExtractor`, `Gemma3nAudioFeatureExtractor`).

use std::f64::consts::PI;

use realfft::RealFftPlanner;
use realfft::num_complex::Complex;

use crate::mel::MelError;
use crate::mel::filters;

/// How frames become logarithms of bands, with the values of the feature extractor's config.
///
/// The default is that of Gemma 4.
///
/// ```
/// use sound::LogMel;
///
/// let frames = LogMel::default().frames(&[0.0; 16_000])?;
/// assert_eq!((frames.bands, frames.count), (128, 99));
/// # Ok::<(), sound::MelError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LogMel {
    /// `feature_size`, the bands: 1 to 1,024. Default: 128.
    pub features: usize,
    /// `sampling_rate`: 1,000 to 384,000. Default: 16,000.
    pub rate: u32,
    /// Samples of a frame: 2 to `fft`. Default: 320.
    pub frame: usize,
    /// Samples from one frame to the next: 1 to 65,536. Default: 160.
    pub hop: usize,
    /// Samples of a transform, those of a frame and zeros: an even number up to 65,536.
    /// Default: 512.
    pub fft: usize,
    /// `min_frequency` and `max_frequency`, in Hz. Default: 0 and 8,000.
    pub frequencies: [u32; 2],
    /// `preemphasis`: this part of each sample is taken away from the next one of its frame, by
    /// HTK's rule for the first one. Default: 0.
    pub preemphasis: f32,
    /// The floor that keeps logarithms finite. Default: 0.001 is added.
    pub floor: Floor,
    /// Half a frame of silence comes before the first sample, and only whole frames are taken.
    /// Otherwise the sound is padded to a multiple of 128 samples, and frames are taken that begin
    /// in the sound. Default: true.
    pub begins_early: bool,
    /// `per_bin_mean` and `per_bin_stddev`, subtracted and divided by. Default: none.
    pub normalize: [Option<Vec<f32>>; 2],
}

/// The floor that keeps logarithms finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Floor {
    /// This is added to each value.
    Added(f64),
    /// Each value is at least this.
    Least(f64),
}

/// Features, frame by frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Frames {
    /// The values, `[count][bands]`.
    pub values: Vec<f32>,
    /// Bands of the mel scale.
    pub bands: usize,
    /// Frames.
    pub count: usize,
}

/// The multiple to which a sound is padded that does not begin early.
const MULTIPLE: usize = 128;

impl Default for LogMel {
    fn default() -> Self {
        Self {
            features: 128,
            rate: 16_000,
            frame: 320,
            hop: 160,
            fft: 512,
            frequencies: [0, 8_000],
            preemphasis: 0.0,
            floor: Floor::Added(1e-3),
            begins_early: true,
            normalize: [None, None],
        }
    }
}

impl LogMel {
    /// The way of Gemma 3n.
    pub fn gemma3n() -> LogMel {
        LogMel {
            frame: 512,
            fft: 1_024,
            frequencies: [125, 7_600],
            preemphasis: 0.97,
            floor: Floor::Least(1e-5),
            begins_early: false,
            ..LogMel::default()
        }
    }

    /// Checks each value.
    ///
    /// # Errors
    /// The first value that is out of its range.
    pub fn validate(&self) -> Result<(), MelError> {
        let fft = (2..=65_536).contains(&self.fft) && self.fft.is_multiple_of(2);
        let frame = (2..=self.fft).contains(&self.frame);
        let rate = self.rate as usize;
        let wrong = self.normalize.iter().flatten().find(|values| values.len() != self.features);
        let normalize = wrong.map_or(self.features, Vec::len);
        let checks = [
            ("feature_size", self.features, (1..=1_024).contains(&self.features), "1 to 1024"),
            ("fft_length", self.fft, fft, "an even number from 2 to 65536"),
            ("frame_length", self.frame, frame, "2 to `fft_length`"),
            ("hop_length", self.hop, (1..=65_536).contains(&self.hop), "1 to 65536"),
            ("sampling_rate", rate, (1_000..=384_000).contains(&rate), "1000 to 384000"),
            ("per_bin_mean", normalize, wrong.is_none(), "one for each of `feature_size`"),
        ];
        if let Some((name, found, _, expected)) = checks.into_iter().find(|(_, _, holds, _)| !holds)
        {
            return Err(MelError::Value { name, found, expected });
        }
        let ([lowest, highest], half) = (self.frequencies, self.rate / 2);
        match lowest < highest && highest <= half {
            true => Ok(()),
            false => Err(MelError::Frequencies { lowest, highest, half }),
        }
    }

    /// How many frames so many samples have.
    pub fn count(&self, samples: usize) -> usize {
        let whole = |samples: usize| {
            samples.checked_sub(self.frame + 1).map_or(0, |rest| rest / self.hop + 1)
        };
        match self.begins_early {
            true => whole(self.frame / 2 + samples),
            false => whole(samples.next_multiple_of(MULTIPLE)).min(samples.div_ceil(self.hop)),
        }
    }

    /// Features of the samples.
    ///
    /// # Errors
    /// When a value is out of its range, or there are too few samples for a frame.
    pub fn frames(&self, samples: &[f32]) -> Result<Frames, MelError> {
        self.validate()?;
        let count = self.count(samples.len());
        if count == 0 {
            let before = if self.begins_early { self.frame / 2 } else { 0 };
            return Err(MelError::TooShort {
                samples: samples.len(),
                least: self.frame + 1 - before,
            });
        }
        let window: Vec<f32> = (0..self.frame).map(|at| self.hann(at)).collect();
        let bands = filters::htk(self.features, self.fft / 2 + 1, self.rate, self.frequencies);
        let fft = RealFftPlanner::<f64>::new().plan_fft_forward(self.fft);
        let (mut frame, mut spectrum) = (fft.make_input_vec(), fft.make_output_vec());
        let mut scratch = fft.make_scratch_vec();
        let mut magnitudes = vec![0.0; spectrum.len()];
        let mut values = Vec::with_capacity(count * self.features);
        for at in 0..count {
            self.take(samples, at, &window, &mut frame);
            fft.process_with_scratch(&mut frame, &mut spectrum, &mut scratch)
                .expect("the buffers are those that the transform made");
            for (magnitude, value) in magnitudes.iter_mut().zip(&spectrum) {
                *magnitude = Complex::norm(*value) as f32;
            }
            values.extend(bands.iter().map(|band| self.logarithm(band.sum(&magnitudes))));
        }
        let [mean, deviation] = &self.normalize;
        for frame in values.chunks_exact_mut(self.features) {
            let each = |values: &Option<Vec<f32>>, neutral: f32, at: usize| {
                values.as_ref().map_or(neutral, |values| values[at])
            };
            for (at, value) in frame.iter_mut().enumerate() {
                *value = (*value - each(mean, 0.0, at)) / each(deviation, 1.0, at);
            }
        }
        Ok(Frames { values, bands: self.features, count })
    }

    /// Hann's window at a sample. That of Gemma 3n is computed in f32: what it leaks from loud
    /// bands is heard in quiet ones.
    fn hann(&self, at: usize) -> f32 {
        match self.begins_early {
            true => (0.5 - 0.5 * (2.0 * PI * at as f64 / self.frame as f64).cos()) as f32,
            false => 0.5 * (1.0 - (2.0 * PI as f32 * at as f32 / self.frame as f32).cos()),
        }
    }

    fn logarithm(&self, magnitude: f32) -> f32 {
        let magnitude = f64::from(magnitude);
        let bounded = match self.floor {
            Floor::Added(floor) => magnitude + floor,
            Floor::Least(floor) => magnitude.max(floor),
        };
        bounded.ln() as f32
    }

    /// Copies a frame under its window, and zeros behind it.
    fn take(&self, samples: &[f32], at: usize, window: &[f32], frame: &mut [f64]) {
        let before = if self.begins_early { self.frame / 2 } else { 0 };
        let sample = |offset: usize| {
            let place = (at * self.hop + offset).checked_sub(before);
            place.and_then(|place| samples.get(place)).copied().unwrap_or(0.0)
        };
        frame.fill(0.0);
        for (offset, (value, weight)) in frame.iter_mut().zip(window).enumerate() {
            let emphasised = match offset {
                _ if self.preemphasis == 0.0 => sample(offset),
                0 => sample(0) * (1.0 - self.preemphasis),
                _ => sample(offset) - self.preemphasis * sample(offset - 1),
            };
            *value = f64::from(emphasised * weight);
        }
    }
}
