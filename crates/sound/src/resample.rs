//! Another rate for samples, by a windowed sinc.
//!
//! Each new sample is the sum of the old ones near it, weighted by a sinc under a Kaiser window
//! (J. O. Smith, "Digital Audio Resampling"). Window and length are those that FFmpeg has where
//! nothing is asked for. Speech models were trained on, and are compared by, what FFmpeg reads.

use std::f64::consts::PI;

use crate::error::SoundError;

/// Rates that are taken, in Hz.
pub(crate) const RATES: std::ops::RangeInclusive<u32> = 1_000..=384_000;

/// Samples at the lower of the two rates that a new one is made of (`filter_size`).
const SIZE: f64 = 32.0;

/// The Kaiser window's parameter (`kaiser_beta`).
const BETA: f64 = 9.0;

/// The end of the band, as part of the half of the new rate (`cutoff`).
const CUTOFF: f64 = 0.97;

/// Most rows of weights. Rates that need more are interpolated between two rows.
const MOST_ROWS: u64 = 1024;

/// Sums of a product, one beside another, so that they are computed at once.
const LANES: usize = 8;

/// A change of rate that takes samples part by part. The result begins where the samples do, and
/// has `ceil(samples * to / from)` samples.
///
/// ```
/// let mut resampler = sound::Resampler::new(44_100, 16_000)?;
/// let mut result = Vec::new();
/// resampler.push(&[0.0; 44_100], &mut result);
/// resampler.finish(&mut result);
/// assert_eq!(result.len(), 16_000);
/// # Ok::<(), sound::SoundError>(())
/// ```
#[derive(Debug)]
pub struct Resampler {
    /// The rates without their common divisor.
    from: u64,
    to: u64,
    /// Weights, `[rows + 1][taps]`: row `r` is for a sample at `r / rows` between two old ones.
    weights: Vec<f32>,
    rows: u64,
    taps: usize,
    /// Old samples before the one in a window's middle.
    before: usize,
    /// Old samples that are still needed. The first is the first of the next new sample's window.
    window: Vec<f32>,
    /// The place of the next new sample after the old one in its window's middle, in parts of `to`.
    phase: u64,
    /// Old samples taken and new ones made.
    taken: u64,
    made: u64,
}

impl Resampler {
    /// A change from one rate to another, both in Hz.
    ///
    /// # Errors
    /// When a rate is below 1,000 or above 384,000.
    pub fn new(from: u32, to: u32) -> Result<Self, SoundError> {
        for rate in [from, to] {
            if !RATES.contains(&rate) {
                return Err(SoundError::Rate { rate, range: RATES });
            }
        }
        let divisor = gcd(from, to);
        let (from, to) = (u64::from(from / divisor), u64::from(to / divisor));
        let scale = (to as f64 * CUTOFF / from as f64).min(1.0);
        let size = ((SIZE / scale).ceil() as usize).next_multiple_of(2);
        let taps = size.next_multiple_of(LANES);
        let rows = to.min(MOST_ROWS);
        let mut resampler = Self {
            from,
            to,
            weights: Vec::new(),
            rows,
            taps,
            // The first sample lies in the middle of its window, after silence.
            window: vec![0.0; middle_of(size)],
            before: middle_of(size),
            phase: 0,
            taken: 0,
            made: 0,
        };
        if from != to {
            resampler.weights = weights(rows, [size, taps], scale);
        }
        Ok(resampler)
    }

    /// Takes samples, and appends what can be made of them to `result`.
    pub fn push(&mut self, samples: &[f32], result: &mut Vec<f32>) {
        self.taken += samples.len() as u64;
        if self.from == self.to {
            result.extend_from_slice(samples);
            return;
        }
        self.window.extend_from_slice(samples);
        self.make(u64::MAX, result);
    }

    /// Appends the rest, and begins anew.
    pub fn finish(&mut self, result: &mut Vec<f32>) {
        if self.from != self.to {
            let all = (u128::from(self.taken) * u128::from(self.to)).div_ceil(self.from.into());
            self.window.resize(self.window.len() + self.taps, 0.0);
            self.make(all as u64, result);
            self.window.clear();
            self.window.resize(self.before, 0.0);
        }
        (self.phase, self.taken, self.made) = (0, 0, 0);
    }

    /// Makes new samples until there are `all`, or too few old ones.
    fn make(&mut self, all: u64, result: &mut Vec<f32>) {
        let mut begin = 0;
        while self.made < all && begin + self.taps <= self.window.len() {
            let window = &self.window[begin..begin + self.taps];
            let place = self.phase * self.rows;
            let (row, rest) = ((place / self.to) as usize, place % self.to);
            let mut sample = product(window, &self.weights[row * self.taps..][..self.taps]);
            if rest > 0 {
                let next = product(window, &self.weights[(row + 1) * self.taps..][..self.taps]);
                sample += (next - sample) * (rest as f64 / self.to as f64) as f32;
            }
            result.push(sample);
            self.made += 1;
            self.phase += self.from;
            begin += (self.phase / self.to) as usize;
            self.phase %= self.to;
        }
        // A step is shorter than a window, so the next one begins inside of what is here.
        self.window.drain(..begin);
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The first of the two samples in the middle of `size`.
fn middle_of(size: usize) -> usize {
    (size - 1) / 2
}

/// Weights of each row, whose sum is 1: of `size` samples, and none of those behind them.
fn weights(rows: u64, [size, taps]: [usize; 2], scale: f64) -> Vec<f32> {
    let half = size as f64 / 2.0;
    let mut result = Vec::with_capacity((rows as usize + 1) * taps);
    for row in 0..=rows {
        let middle = middle_of(size) as f64 + row as f64 / rows as f64;
        let weight = |tap: usize| {
            let distance = tap as f64 - middle;
            let edge = 1.0 - (distance / half).powi(2);
            sinc(distance * scale) * bessel(BETA * edge.max(0.0).sqrt())
        };
        let of_row: Vec<f64> = (0..size).map(weight).collect();
        let sum: f64 = of_row.iter().sum();
        result.extend(of_row.iter().map(|weight| (weight / sum) as f32));
        result.resize(result.len() + taps - size, 0.0);
    }
    result
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

/// The modified Bessel function of the first kind and order 0, by its series.
fn bessel(x: f64) -> f64 {
    let (mut sum, mut term) = (1.0, 1.0);
    for k in 1..64 {
        term *= (x / 2.0 / f64::from(k)).powi(2);
        sum += term;
        if term < sum * 1e-17 {
            break;
        }
    }
    sum
}

fn product(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum()
}
