//! `ml transcribe` and what a server makes of models that transcribe, with the backend's fixtures.

use std::fs;

use serde_json::Value;

use crate::serve::{request, serve, wait_until_ready};
use crate::{finish, generated, interrupt, ml, ml_with_stdin, text};

const FIXTURES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../metal-backend/tests/fixtures/speech");
const SOUNDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sound/tests/fixtures/files");

fn model(name: &str) -> String {
    format!("{FIXTURES}/{name}")
}

fn sound(name: &str) -> String {
    format!("{SOUNDS}/{name}")
}

#[test]
fn files_and_stdin_become_text_json_and_subtitles() {
    let (model, file) = (model("english"), sound("s16.flac"));
    let transcribe = ["transcribe", "--quiet", "--model", &model];
    let with = |more: &[&str]| generated(&[&transcribe[..], more].concat());
    let plain = with(&[&file]);
    assert!(plain.ends_with('\n') && plain.trim().len() > 10, "{plain:?}");
    let piped = ml_with_stdin(&[&transcribe[..], &["-"]].concat(), &fs::read(&file).unwrap());
    assert_eq!(text(&piped.stdout), plain);
    let object: Value = serde_json::from_str(&with(&[&file, "--json"])).unwrap();
    assert_eq!(object["language"], "en");
    assert!(object["segments"][0]["end"].as_f64().unwrap() > 0.0, "{object}");
    let words = with(&[&file, "--json", "--timestamps", "words"]);
    let object: Value = serde_json::from_str(&words).unwrap();
    assert!(!object["words"].as_array().unwrap().is_empty(), "{object}");
    assert!(with(&[&file, "--format", "srt"]).starts_with("1\n00:00:"));
    assert!(with(&[&file, "--format", "vtt"]).starts_with("WEBVTT\n\n00:00:"));
    let folder = tempfile::tempdir().unwrap();
    let texts = folder.path().join("texts");
    let output = texts.to_str().unwrap();
    let (mp3, ogg) = (sound("lame.mp3"), sound("vorbis.ogg"));
    assert_eq!(with(&[&file, &mp3, &ogg, "--output", output]), "");
    let names = ["s16.txt", "lame.txt", "vorbis.txt"].map(|name| texts.join(name));
    assert_eq!(fs::read_to_string(&names[0]).unwrap().trim(), plain.trim());
    assert!(names.iter().all(|name| name.is_file()));
}

#[test]
fn languages_are_found_given_and_refused() {
    let (model, file) = (model("multilingual"), sound("s16.flac"));
    let told = ml(&["transcribe", "--model", &model, &file, "--json"]);
    let object: Value = serde_json::from_str(&text(&told.stdout)).unwrap();
    let found = object["language"].as_str().unwrap().to_owned();
    assert!(text(&told.stderr).contains(&format!("language: {found} (")), "{}", text(&told.stderr));
    let given = generated(&["transcribe", "-q", "-m", &model, &file, "--json", "-l", "French"]);
    assert_eq!(serde_json::from_str::<Value>(&given).unwrap()["language"], "fr");
    for (args, expected) in [
        (&["-l", "klingon"][..], "--language"),
        (&["-t", "3"], "--temperature"),
        (&["--fallback", "-t", "0.5"], "--fallback"),
        (&["--max-tokens", "0"], "--max-tokens"),
    ] {
        let all = [&["transcribe", "-q", "-m", &model, &file][..], args].concat();
        let told = ml(&all);
        assert_eq!(told.status.code(), Some(2), "{args:?}");
        assert!(text(&told.stderr).contains(expected), "{}", text(&told.stderr));
    }
}

#[test]
fn what_is_no_sound_is_told_with_its_file() {
    let model = model("english");
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("note.txt");
    fs::write(&note, "this is no sound at all").unwrap();
    let note = note.to_str().unwrap();
    let silent = sound("silent.mp4");
    for (file, expected) in
        [(note, "no sound"), (&silent, "no track of sound"), ("gone.wav", "gone.wav")]
    {
        let told = ml(&["transcribe", "-q", "-m", &model, file]);
        assert_eq!(told.status.code(), Some(1), "{file}");
        let said = text(&told.stderr);
        assert!(said.contains(expected) && said.contains(file), "{said}");
    }
    let twice = [sound("s16.flac"), sound("s16.wav")];
    let told = ml(&["transcribe", "-q", "-m", &model, &twice[0], &twice[1], "-o", "texts"]);
    assert_eq!(told.status.code(), Some(2));
    assert!(text(&told.stderr).contains("s16.txt"), "{}", text(&told.stderr));
    let text_model = concat!(env!("CARGO_MANIFEST_DIR"), "/demo-model");
    let told = ml(&["transcribe", "-q", "-m", text_model, &sound("s16.flac")]);
    assert_eq!(told.status.code(), Some(1));
    assert!(text(&told.stderr).contains("transcribes no speech"), "{}", text(&told.stderr));
    let told = ml(&["generate", "-q", "-m", &model, "a"]);
    assert_eq!(told.status.code(), Some(1));
    assert!(text(&told.stderr).contains("ml transcribe"), "{}", text(&told.stderr));
}

#[test]
fn models_that_transcribe_are_described_and_listed() {
    let model = model("multilingual");
    let told = generated(&["info", "--model", &model]);
    assert!(told.contains("architecture   whisper\n"), "{told}");
    let object: Value =
        serde_json::from_str(&generated(&["info", "--model", &model, "--json"])).unwrap();
    assert_eq!((&object["translates"], &object["languages"][0]), (&true.into(), &"en".into()));
    let listed = generated(&["list", FIXTURES]);
    assert_eq!(listed.matches("whisper").count(), 2, "{listed}");
}

#[test]
fn a_server_transcribes_beside_the_text_model() {
    let model = model("english");
    let (child, address) = serve(&["--transcription-model", &model]);
    wait_until_ready(&address);
    let listed = request(&address, "GET", "/v1/models", "");
    assert!(listed.contains("\"english\""), "{listed}");
    let encoded = {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(fs::read(sound("s16.flac")).unwrap())
    };
    let body = format!(
        "{{\"file\": \"data:audio/flac;base64,{encoded}\", \"response_format\": \"text\"}}"
    );
    let answer = request(&address, "POST", "/v1/audio/transcriptions", &body);
    let expected = generated(&["transcribe", "-q", "-m", &model, &sound("s16.flac")]);
    assert!(answer.contains(expected.trim()), "{answer}");
    interrupt(&child);
    assert!(finish(child).0 == Some(0));
}
