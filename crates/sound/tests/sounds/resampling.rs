//! Changes of rate against sines that are computed at the new rate.

use std::f64::consts::PI;

use sound::{Resampler, SoundError};

fn sine(rate: u32, hertz: f64, count: usize) -> Vec<f32> {
    let sample = |at: usize| (2.0 * PI * hertz * at as f64 / f64::from(rate)).sin() as f32;
    (0..count).map(sample).collect()
}

fn resampled(samples: &[f32], from: u32, to: u32, part: usize) -> Vec<f32> {
    let mut resampler = Resampler::new(from, to).expect("both are rates");
    let mut result = Vec::new();
    for part in samples.chunks(part) {
        resampler.push(part, &mut result);
    }
    resampler.finish(&mut result);
    result
}

/// The greatest difference between the samples in the middle and what is expected there.
fn difference(samples: &[f32], expected: &[f32], edge: usize) -> f32 {
    assert_eq!(samples.len(), expected.len());
    let pairs = samples.iter().zip(expected).skip(edge).take(samples.len() - 2 * edge);
    pairs.map(|(sample, expected)| (sample - expected).abs()).fold(0.0, f32::max)
}

#[test]
fn a_sine_stays_a_sine() {
    let rates = [44_100, 48_000, 22_050, 8_000, 11_025, 96_000, 44_099, 1_000, 384_000, 16_000];
    for from in rates {
        let hertz = if from == 1_000 { 100.0 } else { 440.0 };
        let samples = resampled(&sine(from, hertz, from as usize), from, 16_000, 777);
        let edge = if from == 1_000 { 1_600 } else { 200 };
        let difference = difference(&samples, &sine(16_000, hertz, 16_000), edge);
        assert!(difference < 1e-4, "{from}: {difference}");
    }
}

#[test]
fn high_tones_below_the_end_of_the_band_pass() {
    let samples = resampled(&sine(44_100, 6_200.0, 44_100), 44_100, 16_000, 4_096);
    let difference = difference(&samples, &sine(16_000, 6_200.0, 16_000), 200);
    assert!(difference < 1e-3, "{difference}");
}

#[test]
fn tones_above_the_new_band_are_damped() {
    for (from, hertz) in [(44_100, 9_400.0), (44_100, 15_560.0), (48_000, 12_000.0)] {
        let samples = resampled(&sine(from, hertz, from as usize), from, 16_000, 4_096);
        let loudest =
            samples[200..15_800].iter().fold(0.0f32, |most, sample| most.max(sample.abs()));
        assert!(loudest < 2e-4, "{hertz} Hz of {from}: {loudest}");
    }
}

#[test]
fn other_rates_are_those_of_ffmpeg() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/rates");
    for from in [8_000_u32, 22_050, 44_100, 48_000] {
        let bytes = std::fs::read(format!("{folder}/{from}.f32")).expect("a fixture");
        let floats = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let expected: Vec<f32> = floats.collect();
        // A tone that rises from 100 Hz to 8 kHz in a tenth of a second.
        let sample = |at: u32| {
            let time = f64::from(at) / f64::from(from);
            (0.5 * (2.0 * PI * (100.0 * time + 39_500.0 * time * time)).sin()) as f32
        };
        let samples: Vec<f32> = (0..from / 10).map(sample).collect();
        let own = resampled(&samples, from, 16_000, 333);
        let difference = difference(&own, &expected[..own.len()], 40);
        assert!(difference < 1e-5, "{from}: {difference}");
    }
}

#[test]
fn parts_do_not_matter_and_the_length_is_exact() {
    for (from, to) in [(44_100, 16_000), (16_000, 44_100), (8_000, 16_000), (48_000, 44_101)] {
        for count in [1, 2, 99, 12_345] {
            let samples = sine(from, 300.0, count);
            let whole = resampled(&samples, from, to, count);
            let length = (count as u64 * u64::from(to)).div_ceil(from.into());
            assert_eq!(whole.len() as u64, length, "{count} of {from} to {to}");
            assert_eq!(whole, resampled(&samples, from, to, 7));
        }
    }
}

#[test]
fn nothing_stays_nothing_and_a_resampler_begins_anew() {
    let mut resampler = Resampler::new(44_100, 16_000).expect("both are rates");
    let (mut first, mut second) = (Vec::new(), Vec::new());
    resampler.finish(&mut first);
    assert!(first.is_empty());
    let samples = sine(44_100, 440.0, 5_000);
    resampler.push(&samples, &mut first);
    resampler.finish(&mut first);
    resampler.push(&samples, &mut second);
    resampler.finish(&mut second);
    assert_eq!(first, second);
}

#[test]
fn absurd_rates_are_refused() {
    for (from, to, wrong) in [(0, 16_000, 0), (16_000, 999, 999), (384_001, 16_000, 384_001)] {
        let error = Resampler::new(from, to).expect_err("one is no rate");
        assert_eq!(error, SoundError::Rate { rate: wrong, range: 1_000..=384_000 });
    }
}
