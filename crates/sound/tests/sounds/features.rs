//! Features against those of transformers, and their own laws.

use sound::{Features, LogMel, Mel, MelError};

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

/// Most that a logarithm may differ: the reference computes in f32, too.
const LOGARITHM: f32 = 1e-4;

#[test]
fn features_of_gemma_are_those_of_transformers() {
    let bins = answer("gemma4_other_bins.f32");
    let other = LogMel {
        features: 80,
        frame: 400,
        frequencies: [60, 7_000],
        preemphasis: 0.9,
        normalize: [Some(bins[..80].to_vec()), Some(bins[80..].to_vec())],
        ..LogMel::default()
    };
    for (name, way, samples) in [
        ("gemma4", LogMel::default(), 8_000),
        ("gemma4_odd", LogMel::default(), 1_999),
        ("gemma4_other", other, 3_000),
        ("gemma3n", LogMel::gemma3n(), 8_000),
        ("gemma3n_odd", LogMel::gemma3n(), 1_999),
    ] {
        let frames = way.frames(&sound()[..samples]).expect("the sound is long enough");
        let answer = answer(&format!("{name}.f32"));
        assert_eq!(frames.values.len(), answer.len(), "{name}");
        assert_eq!(frames.count, way.count(samples));
        let pairs = frames.values.iter().zip(&answer);
        let away = pairs.map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f32::max);
        println!("{name}: {away:.1e}");
        assert!(away < LOGARITHM, "{name} differs by {away}");
    }
}

#[test]
fn ways_that_make_no_features_of_gemma_are_named() {
    let refused = |way: LogMel, samples: usize| {
        way.frames(&vec![0.0; samples]).expect_err("it makes none").to_string()
    };
    assert!(
        refused(LogMel::default(), 160).contains("has 160 samples, and features need at least 161")
    );
    assert_eq!(LogMel::default().count(161), 1);
    let frequencies = [8_000, 60];
    let way = LogMel { frequencies, ..LogMel::default() };
    assert!(refused(way, 8_000).contains("`min_frequency` is 8000 and `max_frequency` 60"));
    let way = LogMel { frame: 1_000, ..LogMel::default() };
    assert!(refused(way, 8_000).contains("`frame_length` is 1000, expected 2 to `fft_length`"));
    let way = LogMel { normalize: [None, Some(vec![1.0])], ..LogMel::default() };
    assert!(refused(way, 8_000).contains("one for each of `feature_size`"));
}
