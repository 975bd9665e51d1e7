//! Sounds in many formats against the tone that they hold, features against those of transformers,
//! and sounds that are refused. `tests/fixtures/make.py` made the files.

mod bad;
mod decoding;
mod features;
mod resampling;

use std::f64::consts::PI;
use std::path::PathBuf;

use sound::{Limits, Sound, SoundError};

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(fixtures().join("files").join(name)).expect("the fixture is there")
}

fn decoded(bytes: &[u8], rate: u32) -> Result<Sound, SoundError> {
    Sound::decode(bytes, rate, &Limits::default())
}

/// The tone of all fixtures, as `make.py` makes it.
fn tone(rate: u32, seconds: f64) -> Vec<f32> {
    let count = (f64::from(rate) * seconds).round_ties_even() as usize;
    let sample = |at: usize| {
        let t = at as f64 / f64::from(rate);
        let phase = 2.0 * PI * (300.0 * t + 1200.0 / seconds * t * t / 2.0);
        (0.4 * phase.sin() * (t.min(seconds - t) / 0.02).min(1.0)) as f32
    };
    (0..count).map(sample).collect()
}

/// How much louder the tone is than the difference to it, in dB.
fn fidelity(samples: &[f32], tone: &[f32]) -> f64 {
    let power = |values: &mut dyn Iterator<Item = f32>| -> f64 {
        values.map(|value| f64::from(value).powi(2)).sum()
    };
    let noise = power(&mut samples.iter().zip(tone).map(|(sample, tone)| sample - tone));
    10.0 * (power(&mut tone.iter().copied()) / noise).log10()
}
