//! Parakeet against transformers: see `tests/fixtures/speech/make_parakeet.py`.

use std::fs;
use std::path::{Path, PathBuf};

use inference_core::{
    Error, Fallback, Samples, SpeechTask, Timestamps, TranscribeOptions, Transcript,
    TranscriptionLoadOptions, TranscriptionModel,
};
use serde_json::Value as Json;
use sound::{NormalizedMel, Sound};

use super::fixtures::{RATE, ids};

const KINDS: [&str; 2] = ["parakeet_ctc", "parakeet_tdt"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn load(kind: &str) -> Box<dyn TranscriptionModel> {
    let _ = metal_backend::register();
    let options = TranscriptionLoadOptions::default();
    let folder = fixtures().join("speech").join(kind);
    inference_core::load_transcription_model(&folder, &options).expect("the checkpoint loads")
}

fn goldens(kind: &str) -> Json {
    let file = fixtures().join("speech").join(kind).join("goldens.json");
    serde_json::from_str(&fs::read_to_string(file).expect("it is there")).expect("it is JSON")
}

/// The samples of a file; of `N:FILE`, the file again and again up to N samples.
fn sound(name: &str) -> Samples {
    let (count, file) = name.split_once(':').map_or((None, name), |(n, file)| (Some(n), file));
    let bytes = fs::read(fixtures().join("hearing/sounds").join(file)).expect("it is there");
    let sound = Sound::decode(&bytes, RATE, &sound::Limits::default()).expect("it is a sound");
    let count = count.map_or(sound.samples.len(), |count| count.parse().expect("a number"));
    Samples { values: sound.samples.iter().copied().cycle().take(count).collect(), rate: RATE }
}

fn transcribed(model: &dyn TranscriptionModel, name: &str, timestamps: Timestamps) -> Transcript {
    let options = TranscribeOptions { timestamps, ..TranscribeOptions::default() };
    let made = model.transcribe(sound(name), &options).expect("it is taken");
    made.finish().expect("it is transcribed")
}

#[test]
fn features_are_those_of_transformers() {
    for (name, golden) in goldens("parakeet_ctc").as_object().expect("cases") {
        let expected: Vec<f64> = golden["features"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|value| value.as_f64().expect("a number"))
            .collect();
        if expected.is_empty() {
            continue;
        }
        let frames = NormalizedMel::default().frames(&sound(name).values).expect("long enough");
        assert_eq!(frames.values.len(), expected.len(), "{name}");
        let pairs = frames.values.iter().zip(&expected);
        let away: Vec<f64> = pairs.map(|(a, b)| (f64::from(*a) - b).abs()).collect();
        let most = away.iter().copied().fold(0.0, f64::max);
        let mean = away.iter().sum::<f64>() / away.len() as f64;
        println!("{name}: {most:.1e}, {mean:.1e} in the mean");
        // The reference transforms in f32: its own sums are that far from those in f64, in the
        // quietest bands.
        assert!(most < 1e-3 && mean < 1e-5, "{name} differs by {most}, {mean} in the mean");
    }
}

#[test]
fn tokens_and_texts_are_those_of_transformers() {
    for kind in KINDS {
        let model = load(kind);
        assert_eq!(model.info().architecture, kind);
        for (name, golden) in goldens(kind).as_object().expect("cases") {
            let made = transcribed(model.as_ref(), name, Timestamps::None);
            let found: Vec<u32> =
                made.segments.iter().flat_map(|segment| segment.tokens.iter().copied()).collect();
            assert_eq!(found, ids(&golden["tokens"]), "{kind} {name}");
            assert_eq!(made.text, golden["text"].as_str().expect("a text"), "{kind} {name}");
        }
    }
}

#[test]
fn words_are_said_when_transformers_says() {
    let model = load("parakeet_tdt");
    let mut count = 0;
    for (name, golden) in goldens("parakeet_tdt").as_object().expect("cases") {
        let made = transcribed(model.as_ref(), name, Timestamps::Words);
        let words: Vec<_> = made.segments.iter().flat_map(|segment| &segment.words).collect();
        let expected = golden["words"].as_array().expect("words");
        assert_eq!(words.len(), expected.len(), "{name}");
        for (word, expected) in words.iter().zip(expected) {
            assert_eq!(Some(word.word.trim()), expected["word"].as_str().map(str::trim), "{name}");
            for (own, key) in [(word.start, "start"), (word.end, "end")] {
                let expected = expected[key].as_f64().expect("a number");
                assert!((own - expected).abs() < 1e-6, "{name} {key}: {own}, not {expected}");
            }
            assert!((0.0..=1.0).contains(&word.probability), "{word:?}");
            count += 1;
        }
        let segments = transcribed(model.as_ref(), name, Timestamps::Segments).segments;
        let text: String = segments.iter().map(|segment| segment.text.as_str()).collect();
        assert_eq!(text.trim(), made.text.trim(), "{name}");
        assert!(segments.iter().all(|segment| segment.words.is_empty()));
    }
    assert!(count > 20, "{count}");
}

#[test]
fn words_of_ctc_are_said_where_their_tokens_are_found() {
    let model = load("parakeet_ctc");
    assert!(model.info().times_words);
    let mut count = 0;
    for name in goldens("parakeet_ctc").as_object().expect("cases").keys() {
        let whole = transcribed(model.as_ref(), name, Timestamps::None);
        let made = transcribed(model.as_ref(), name, Timestamps::Words);
        let all = |of: &Transcript| {
            let tokens = of.segments.iter().flat_map(|segment| segment.tokens.iter().copied());
            tokens.collect::<Vec<u32>>()
        };
        assert_eq!((all(&made), &made.text), (all(&whole), &whole.text), "{name}");
        let words: Vec<_> = made.segments.iter().flat_map(|segment| &segment.words).collect();
        let texts: Vec<&str> = words.iter().map(|word| word.word.trim()).collect();
        assert_eq!(texts.join(" "), made.text.split_whitespace().collect::<Vec<_>>().join(" "));
        // Places of 80 ms, one word behind the other, within the sound.
        let mut end = 0.0;
        for word in words {
            let places = word.start / 0.08;
            assert!((places - places.round()).abs() < 1e-6, "{word:?}");
            assert!(end <= word.start && word.start < word.end, "{word:?}");
            end = word.end;
            count += 1;
        }
        assert!(end <= made.seconds + 0.08, "{name}: {end} of {}", made.seconds);
        let segments = transcribed(model.as_ref(), name, Timestamps::Segments).segments;
        assert!(segments.iter().all(|segment| segment.words.is_empty()));
    }
    assert!(count > 5, "{count}");
}

#[test]
fn what_parakeet_cannot_do_is_refused_by_name() {
    let none = TranscribeOptions::default;
    for (kind, options, what) in [
        ("parakeet_tdt", TranscribeOptions { language: Some("de".into()), ..none() }, "language"),
        (
            "parakeet_tdt",
            TranscribeOptions { task: SpeechTask::Translate, ..none() },
            "translation",
        ),
        ("parakeet_ctc", TranscribeOptions { prompt: Some("a b".into()), ..none() }, "prompt"),
        ("parakeet_ctc", TranscribeOptions { temperature: Some(0.5), ..none() }, "temperature"),
        ("parakeet_ctc", TranscribeOptions { max_tokens: Some(5), ..none() }, "max_tokens"),
        (
            "parakeet_ctc",
            TranscribeOptions { fallback: Some(Fallback::default()), ..none() },
            "fallback",
        ),
        (
            "parakeet_ctc",
            TranscribeOptions { condition_on_previous: Some(true), ..none() },
            "condition_on_previous",
        ),
    ] {
        let error = load(kind).transcribe(sound("word.wav"), &options).expect_err("it is refused");
        match error {
            Error::Unsupported { what: found, .. } => assert_eq!(found, what),
            other => panic!("{what}: {other}"),
        }
    }
    let model = load("parakeet_ctc");
    let short = Samples { values: vec![0.1; 300], rate: RATE };
    let error = model.transcribe(short, &none()).expect_err("it is too short").to_string();
    assert!(error.contains("has 300 samples, and features need at least 320"), "{error}");
    let other = Samples { values: vec![0.1; 8_000], rate: 8_000 };
    let error = model.transcribe(other, &none()).expect_err("another rate").to_string();
    assert!(error.contains("resample"), "{error}");
    let options = TranscriptionLoadOptions { parallel: Some(2), ..Default::default() };
    let folder = fixtures().join("speech/parakeet_ctc");
    let error = inference_core::load_transcription_model(&folder, &options).map(|_| ());
    assert!(error.expect_err("it hears one at a time").to_string().contains("parallel"));
}

#[test]
fn what_does_not_fit_the_memory_is_refused_with_the_numbers() {
    let _ = metal_backend::register();
    let options = TranscriptionLoadOptions { memory_limit: Some(8 << 20), ..Default::default() };
    let folder = fixtures().join("speech/parakeet_tdt");
    let model = inference_core::load_transcription_model(&folder, &options).expect("it loads");
    let made = model.transcribe(sound("2000000:talk.wav"), &TranscribeOptions::default());
    let error = made.expect("it is taken").finish().expect_err("it does not fit");
    assert!(matches!(error, Error::Memory { .. }), "{error}");
    assert!(error.to_string().contains("12500 frames of features"), "{error}");
}
