//! Waves on plain numbers: the voice's source of a pitch and its harmonics with noise, and spectra
//! of short windows, forth and back. All of it is a thousandth of the decoder's work.

use std::f64::consts::TAU;

/// Samples a second, for which the released models' sources were made.
pub(super) const RATE: f32 = 24_000.0;
/// Amplitudes of harmonics, and of the noise where there is a voice.
const SINE: f32 = 0.1;
const NOISE: f32 = 0.003;
/// The pitch in Hz above which there is a voice.
const VOICED: f32 = 10.0;
/// The pitch and its harmonics.
pub(super) const HARMONICS: usize = 9;

/// Draws of a normal distribution by their number (SplitMix64, Box and Muller).
#[derive(Clone, Copy, Debug)]
pub(super) struct Noise {
    pub seed: u64,
}

impl Noise {
    /// The draw `at`.
    fn normal(self, at: u64) -> f32 {
        let step = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut x = self.seed.wrapping_add(step);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        let unit = f64::from(1_u32 << 24);
        let (first, second) = (((x >> 40) + 1) as f64 / unit, (x & 0xff_ffff) as f64 / unit);
        ((-2.0 * first.ln()).sqrt() * (TAU * second).cos()) as f32
    }
}

/// The source of a voice.
#[derive(Debug)]
pub(super) struct Source {
    /// How much of each harmonic is heard.
    pub weights: [f32; HARMONICS],
    pub bias: f32,
    /// Samples of half a frame.
    pub scale: usize,
}

impl Source {
    /// The wave of the pitch of each half frame.
    pub fn wave(&self, pitch: &[f32], noise: Noise) -> Vec<f32> {
        let phases = self.phases(pitch);
        let scale = self.scale as f32;
        let mut wave = Vec::with_capacity(pitch.len() * self.scale);
        for at in 0..pitch.len() * self.scale {
            let hertz = pitch[at / self.scale];
            // Between the middles of two half frames, as torch interpolates.
            let place = ((at as f32 + 0.5) / scale - 0.5).max(0.0);
            let before = (place as usize).min(pitch.len() - 1);
            let behind = (before + 1).min(pitch.len() - 1);
            let part = place - before as f32;
            let is_voiced = hertz > VOICED;
            let loud = if is_voiced { NOISE } else { SINE / 3.0 };
            let mut sum = self.bias;
            for (harmonic, weight) in self.weights.iter().enumerate() {
                let of = |at: usize| phases[at * HARMONICS + harmonic];
                let phase = (1.0 - part) * of(before) + part * of(behind);
                let sine = if is_voiced { f64::from(phase).sin() as f32 * SINE } else { 0.0 };
                let drawn = noise.normal((at * HARMONICS + harmonic) as u64);
                sum += weight * (sine + loud * drawn);
            }
            wave.push(sum.tanh());
        }
        wave
    }

    /// Phases in the middle of each half frame, of each harmonic. They are rounded as the
    /// reference rounds them: a phase of thousands of turns has few digits left.
    fn phases(&self, pitch: &[f32]) -> Vec<f32> {
        let mut turns = [0.0f64; HARMONICS];
        let mut phases = Vec::with_capacity(pitch.len() * HARMONICS);
        for hertz in pitch {
            for (harmonic, turns) in turns.iter_mut().enumerate() {
                let step = (hertz * (harmonic + 1) as f32 / RATE).rem_euclid(1.0);
                *turns += f64::from(step);
                let phase = *turns as f32 * 2.0 * std::f32::consts::PI;
                phases.push(phase * self.scale as f32);
            }
        }
        phases
    }
}

/// Spectra of windows (Hann) of `size` samples, which move by `hop`.
#[derive(Debug)]
pub(super) struct Spectra {
    pub size: usize,
    pub hop: usize,
}

impl Spectra {
    /// Frequencies of a window.
    pub fn bins(&self) -> usize {
        self.size / 2 + 1
    }

    fn window(&self) -> Vec<f64> {
        let of = |at: usize| 0.5 - 0.5 * (TAU * at as f64 / self.size as f64).cos();
        (0..self.size).map(of).collect()
    }

    /// Cosines and sines of a turn in `size` steps.
    fn circle(&self) -> Vec<[f64; 2]> {
        let angle = |at: usize| TAU * at as f64 / self.size as f64;
        (0..self.size).map(|at| [angle(at).cos(), angle(at).sin()]).collect()
    }

    /// Magnitudes, then angles of the window around each `hop`-th sample, one window after the
    /// other. The wave is mirrored at its ends. It is longer than half a window.
    pub fn of(&self, wave: &[f32]) -> Vec<f32> {
        let (half, window, circle) = (self.size / 2, self.window(), self.circle());
        let mirrored = |at: usize| -> f64 {
            let last = wave.len() - 1;
            let at = at.abs_diff(half);
            f64::from(wave[if at > last { 2 * last - at } else { at }])
        };
        let mut made = Vec::new();
        for first in (0..=wave.len()).step_by(self.hop) {
            let seen = window.iter().enumerate().map(|(at, factor)| mirrored(first + at) * factor);
            let seen: Vec<f64> = seen.collect();
            let bin = |bin: usize| {
                let mut sums = [0.0; 2];
                for (at, value) in seen.iter().enumerate() {
                    let [cosine, sine] = circle[bin * at % self.size];
                    sums[0] += value * cosine;
                    sums[1] -= value * sine;
                }
                // Sines are 0 in these, and in all of a window that mirrors itself, as the first
                // one does. Rounding must not choose the sign of half a turn.
                let is_even = bin.is_multiple_of(half) || sums[1].abs() < 1e-5;
                if is_even { [sums[0], 0.0] } else { sums }
            };
            let all: Vec<[f64; 2]> = (0..self.bins()).map(bin).collect();
            made.extend(all.iter().map(|[real, imaginary]| real.hypot(*imaginary) as f32));
            made.extend(all.iter().map(|[real, imaginary]| imaginary.atan2(*real) as f32));
        }
        made
    }

    /// The wave of windows, each told as logarithms of magnitudes, then numbers whose sines are
    /// angles.
    pub fn sound(&self, told: &[f32]) -> Vec<f32> {
        let (bins, window, circle) = (self.bins(), self.window(), self.circle());
        let windows = told.len() / (2 * bins);
        let all = windows.saturating_sub(1) * self.hop + self.size;
        let (mut sums, mut weights) = (vec![0.0f64; all], vec![0.0f64; all]);
        for (at, told) in told.chunks_exact(2 * bins).enumerate() {
            let (magnitudes, angles) = told.split_at(bins);
            let pair = |(magnitude, angle): (&f32, &f32)| {
                let (magnitude, angle) = (f64::from(*magnitude).exp(), f64::from(*angle).sin());
                [magnitude * angle.cos(), magnitude * angle.sin()]
            };
            let pairs: Vec<[f64; 2]> = magnitudes.iter().zip(angles).map(pair).collect();
            for (sample, factor) in window.iter().enumerate() {
                let mut sum = 0.0;
                for (bin, [real, imaginary]) in pairs.iter().enumerate() {
                    let [cosine, sine] = circle[bin * sample % self.size];
                    // The first and the last stand for themselves, the others for their mirrors.
                    let times = if bin % (bins - 1) == 0 { 1.0 } else { 2.0 };
                    sum += times * (real * cosine - imaginary * sine);
                }
                sums[at * self.hop + sample] += sum / self.size as f64 * factor;
                weights[at * self.hop + sample] += factor * factor;
            }
        }
        let half = self.size / 2;
        let inner = half..all.saturating_sub(half).max(half);
        inner.map(|at| (sums[at] / weights[at].max(1e-11)) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spectra_of_a_wave_become_the_wave_again() {
        let spectra = Spectra { size: 20, hop: 5 };
        let wave: Vec<f32> = (0..200).map(|at| (0.37 * at as f32).sin() * 0.4).collect();
        let of = spectra.of(&wave);
        let bins = spectra.bins();
        assert_eq!(of.len(), 41 * 2 * bins);
        // The sine of what is told is the angle, which reaches but a third of the circle.
        let mut told = of.clone();
        for window in told.chunks_exact_mut(2 * bins) {
            let (magnitudes, angles) = window.split_at_mut(bins);
            for (magnitude, angle) in magnitudes.iter_mut().zip(angles) {
                *magnitude = magnitude.max(1e-9).ln();
                *angle = angle.clamp(-1.0, 1.0).asin();
            }
        }
        let is_told = |at: usize| {
            of[at * 2 * bins + bins..(at + 1) * 2 * bins].iter().all(|a| a.abs() <= 1.0)
        };
        let made = spectra.sound(&told);
        assert_eq!(made.len(), wave.len());
        for at in 0..made.len() {
            let windows = at / 5..=(at / 5 + 3).min(40);
            if windows.clone().all(is_told) {
                assert!((made[at] - wave[at]).abs() < 1e-4, "{at}: {}, not {}", made[at], wave[at]);
            }
        }
    }

    #[test]
    fn noise_is_normal_and_repeats_with_its_seed() {
        let draw = |seed| (0..20_000).map(|at| Noise { seed }.normal(at)).collect::<Vec<f32>>();
        let drawn = draw(3);
        assert_eq!(drawn, draw(3));
        assert_ne!(drawn, draw(4));
        let mean = drawn.iter().sum::<f32>() / 20_000.0;
        let variance = drawn.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean}, {variance}");
    }

    #[test]
    fn a_source_has_its_pitch_where_there_is_a_voice() {
        let mut weights = [0.0; HARMONICS];
        weights[0] = 1.0;
        let source = Source { weights, bias: 0.0, scale: 300 };
        let wave = source.wave(&[240.0; 80], Noise { seed: 1 });
        assert_eq!(wave.len(), 24_000);
        // Noise crosses zero more often than the voice does.
        let loud: Vec<f32> = wave.into_iter().filter(|value| value.abs() > 0.05).collect();
        let turns = loud.windows(2).filter(|pair| pair[0] < 0.0 && pair[1] >= 0.0).count();
        assert!((236..=246).contains(&turns), "{turns} turns a second");
        let silent = source.wave(&[0.0; 8], Noise { seed: 1 });
        assert!(silent.iter().all(|value| value.abs() < 0.2));
    }
}
