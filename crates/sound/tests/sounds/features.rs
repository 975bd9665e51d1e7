//! Features against those of transformers, and their own laws.

use sound::{Features, Mel, MelError};

use crate::{decoded, fixtures, tone};

/// Most that a value may differ, of a range of about -1 to 1.5. The reference adds up in another
/// order.
const TOLERANCE: f32 = 1e-4;

fn mel(features: usize) -> Mel {
    Mel { features, ..Mel::default() }
}

fn sound() -> Vec<f32> {
    let file = std::fs::read(fixtures().join("features/sound.wav")).expect("the fixture is there");
    decoded(&file, 16_000).expect("the fixture is a sound").samples
}

fn answer(name: &str) -> Vec<f32> {
    let file = std::fs::read(fixtures().join("features").join(name)).expect("the fixture is there");
    let four = |four: &[u8]| f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
    file.chunks_exact(4).map(four).collect()
}

/// The greatest difference to the first frames of an answer.
fn difference(features: &Features, answer: &[f32]) -> f32 {
    let frames = answer.len() / features.bands;
    assert_eq!(features.values.len(), features.bands * features.frames);
    let rows = features.values.chunks(features.frames).zip(answer.chunks(frames));
    let pairs = rows.flat_map(|(ours, theirs)| ours[..frames].iter().zip(theirs));
    pairs.map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f32::max)
}

#[test]
fn features_are_those_of_transformers() {
    for bands in [80, 128] {
        let features = mel(bands).features(&sound()).expect("the sound is long enough");
        assert_eq!((features.bands, features.frames), (bands, 50));
        let answer = answer(&format!("{bands}.f32"));
        assert_eq!(answer.len(), bands * 50);
        let difference = difference(&features, &answer);
        assert!(difference < TOLERANCE, "{bands} bands differ by {difference}");
    }
}

#[test]
fn features_of_a_padded_sound_are_those_of_transformers() {
    let features = mel(128).padded(&sound(), 480_000).expect("the sound is long enough");
    assert_eq!((features.bands, features.frames), (128, 3_000));
    let difference = difference(&features, &answer("128_padded.f32"));
    assert!(difference < TOLERANCE, "they differ by {difference}");
    let silence = features.values[100];
    let mut rows = features.values.chunks(3_000);
    assert!(rows.all(|row| row[52..].iter().all(|value| *value == silence)));
}

/// Frames in the middle of a long sound, which other threads compute, are those of a short one.
#[test]
fn blocks_of_frames_fit_together() {
    let sound: Vec<f32> = tone(16_000, 1.0).into_iter().cycle().take(16_000 * 90).collect();
    let long = mel(80).features(&sound).expect("the sound is long enough");
    let short = mel(80).features(&sound[..16_000 * 3]).expect("the sound is long enough");
    assert_eq!(long.frames, 9_000);
    for (long, short) in long.values.chunks(9_000).zip(short.values.chunks(300)) {
        for second in 1..88 {
            assert_eq!(long[second * 100..][..100], short[100..200]);
        }
    }
}

#[test]
fn other_frames_and_hops_are_taken() {
    let other = Mel { features: 40, fft: 512, hop: 128, rate: 22_050 };
    let features = other.features(&tone(22_050, 1.0)).expect("the sound is long enough");
    assert_eq!((features.bands, features.frames), (40, 172));
    assert!(features.values.iter().all(|value| value.is_finite()));
}

#[test]
fn wrong_values_and_short_sounds_are_refused() {
    let error = Mel { fft: 401, ..Mel::default() }.features(&[0.0; 16_000]).unwrap_err();
    assert_eq!(error.to_string(), "`n_fft` is 401, expected an even number from 2 to 65536");
    for wrong in [
        Mel { features: 0, ..Mel::default() },
        Mel { hop: 0, ..Mel::default() },
        Mel { fft: usize::MAX - 1, ..Mel::default() },
        Mel { rate: 0, ..Mel::default() },
    ] {
        assert!(matches!(wrong.features(&[0.0; 16_000]), Err(MelError::Value { .. })));
    }
    let short = Mel::default().features(&[0.0; 200]);
    assert_eq!(short, Err(MelError::TooShort { samples: 200, least: 201 }));
    assert!(Mel::default().features(&[0.0; 201]).is_ok());
}
