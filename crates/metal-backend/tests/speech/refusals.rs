//! Refusals by name.

use std::fs;

use inference_core::{
    Error, Samples, SpeechTask, Timestamps, TranscribeOptions, TranscriptionLoadOptions,
};
use tempfile::TempDir;

use super::fixtures::{Fixture, RATE};

fn refused(name: &str, rate: u32, options: TranscribeOptions) -> String {
    let model = Fixture::new(name).load(&TranscriptionLoadOptions::default());
    let sound = Samples { values: vec![0.1; 32_000], rate };
    let error = model.transcribe(sound, &options).expect_err("it is refused");
    assert!(matches!(error, Error::InvalidOption { .. } | Error::Unsupported { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn what_the_model_cannot_do_is_refused_by_name() {
    let none = TranscribeOptions::default;
    let language = |name: &str| TranscribeOptions { language: Some(name.into()), ..none() };
    let prompt = |text: &str| TranscribeOptions { prompt: Some(text.into()), ..none() };
    let cases = [
        ("english", 8_000, none(), "resample"),
        ("english", RATE, language("German"), "English"),
        ("multilingual", RATE, language("klingon"), "en, zh, de"),
        ("multilingual", RATE, language("sw"), "none of the model's languages"),
        ("english", RATE, prompt("a <|nospeech|> b"), "<|nospeech|>"),
        (
            "english",
            RATE,
            TranscribeOptions { task: SpeechTask::Translate, ..none() },
            "English alone",
        ),
        ("english", RATE, TranscribeOptions { temperature: Some(3.0), ..none() }, "temperature"),
    ];
    for (name, rate, options, expected) in cases {
        let told = refused(name, rate, options);
        assert!(told.contains(expected), "{told}");
    }
    let model = Fixture::new("english").load(&TranscriptionLoadOptions::default());
    let empty = model.transcribe(Samples { values: Vec::new(), rate: RATE }, &none());
    assert!(empty.expect_err("nothing is heard").to_string().contains("no samples"));
}

/// A copy of the English model whose file `name` is changed by `change`.
fn changed(name: &str, change: impl Fn(String) -> String) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(Fixture::new("english").folder).expect("it is listed") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, folder.path().join(path.file_name().expect("a name"))).expect("a copy");
    }
    let path = folder.path().join(name);
    let text = fs::read_to_string(&path).expect("a text");
    fs::write(&path, change(text)).expect("it is written");
    folder
}

#[test]
fn checkpoints_that_do_not_fit_are_refused_with_what_is_wrong() {
    let replaced = |name: &str, from: &'static str, to: &'static str| {
        changed(name, move |text| {
            assert!(text.contains(from), "{text}");
            text.replace(from, to)
        })
    };
    let cases = [
        (replaced("config.json", "\"d_model\":32", "\"d_model\":33"), "33"),
        (replaced("config.json", "\"decoder_layers\":2", "\"decoder_layers\":3"), "layers.2"),
        (
            replaced("preprocessor_config.json", "\"feature_size\":80", "\"feature_size\":81"),
            "feature_size",
        ),
        (
            replaced(
                "config.json",
                "\"activation_function\":\"gelu\"",
                "\"activation_function\":\"x\"",
            ),
            "`x`",
        ),
        (
            replaced("config.json", "\"num_mel_bins\"", "\"n_mels\":80,\"num_mel_bins\""),
            "mlx-whisper",
        ),
        (
            replaced("generation_config.json", "\"eos_token_id\":302", "\"eos_token_id\":999999"),
            "999999",
        ),
        (replaced("generation_config.json", "[[0,1]", "[[9,1]"), "layer 9"),
        (replaced("generation_config.json", "[[0,1]", "[[0]"), "alignment_heads"),
        (
            replaced("generation_config.json", "{\"alignment", "{\"alignment\": [, \"a"),
            "generation_config.json",
        ),
        (replaced("preprocessor_config.json", "\"n_fft\":400", "\"n_fft\":401"), "n_fft"),
    ];
    for (folder, expected) in cases {
        let options =
            TranscriptionLoadOptions { backend: Some("cpu".into()), ..Default::default() };
        metal_backend::register().expect("the backends register");
        let error = inference_core::load_transcription_model(folder.path(), &options);
        let told = error.err().expect("it is refused").to_string();
        assert!(told.contains(expected), "{expected}: {told}");
    }
    // Without heads that follow the words, words have no times.
    let folder = replaced("generation_config.json", "\"alignment_heads\"", "\"others\"");
    let options = TranscriptionLoadOptions { backend: Some("cpu".into()), ..Default::default() };
    let model = inference_core::load_transcription_model(folder.path(), &options).expect("loads");
    assert!(!model.info().times_words);
    let words = TranscribeOptions { timestamps: Timestamps::Words, ..Default::default() };
    let sound = Samples { values: vec![0.1; 32_000], rate: RATE };
    let error = model.transcribe(sound, &words).expect_err("it is refused").to_string();
    assert!(error.contains("alignment_heads"), "{error}");
}
