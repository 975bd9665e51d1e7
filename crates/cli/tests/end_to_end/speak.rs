//! `ml speak` and what a server makes of models that speak, with the backend's fixture.

use std::fs;

use serde_json::json;

use crate::serve::{request, serve, wait_until_ready};
use crate::{finish, generated, interrupt, ml, ml_with_stdin, text};

const MODEL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../metal-backend/tests/fixtures/speech/kokoro");

#[test]
fn phonemes_become_a_file_of_sound() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hello.wav");
    let output = file.to_str().unwrap();
    let speak = ["speak", "--quiet", "--model", MODEL, "--phonemes"];
    fs::write(&file, "another one").unwrap();
    let with = |more: &[&str]| generated(&[&speak[..], more].concat());
    assert_eq!(with(&["həlˈO", "--voice", "bm_two", "--output", output]), "");
    let said = fs::read(&file).unwrap();
    let sound = sound::Sound::decode(&said, 24_000, &sound::Limits::default()).unwrap();
    assert!(sound.samples.len() > 300 && sound.info.rate == 24_000);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let piped = ml_with_stdin(
        &[&speak[..], &["--voice", "bm_two", "--output", "-"]].concat(),
        "həlˈO\n".as_bytes(),
    );
    assert_eq!(piped.stdout, said);
    let faster = with(&["həlˈO", "--speed", "4", "--voice", "bm_two", "--output", output]);
    assert!(faster.is_empty() && fs::read(&file).unwrap().len() < said.len());
    assert_eq!(generated(&["speak", "-m", MODEL, "--voices"]), "af_one\nbm_two\n");
}

#[test]
fn what_cannot_be_said_is_told_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none.wav");
    let output = file.to_str().unwrap();
    for (args, expected) in [
        (&["--phonemes", "A", "--voice", "nobody"][..], "--voice"),
        (&["--phonemes", "A", "--speed", "9"], "--speed"),
        (&["--phonemes", " "], "the text"),
        (&["--phonemes", "ΩΩΩ"], "the text"),
    ] {
        let told = ml(&[&["speak", "-q", "-m", MODEL, "-o", output][..], args].concat());
        assert_eq!(told.status.code(), Some(2), "{args:?}: {}", text(&told.stderr));
        assert!(text(&told.stderr).contains(expected), "{}", text(&told.stderr));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn models_that_speak_are_described() {
    let told = generated(&["info", "--model", MODEL]);
    assert!(told.contains("voices         af_one, bm_two\n"), "{told}");
}

#[test]
fn a_server_speaks_beside_the_text_model() {
    let (child, address) = serve(&["--speech-model", MODEL]);
    wait_until_ready(&address);
    let body = json!({"model": "kokoro", "input": "həlˈO", "phonemes": true, "voice": "af_one",
        "stream_format": "sse"});
    let answer = request(&address, "POST", "/v1/audio/speech", &body.to_string());
    assert!(answer.contains("speech.audio.delta"), "{answer}");
    assert!(answer.contains("speech.audio.done"), "{answer}");
    interrupt(&child);
    assert!(finish(child).0 == Some(0));
}
