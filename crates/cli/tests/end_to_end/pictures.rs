//! Pictures and sounds on the command line, with a model that does not see or hear.

use std::fs;

use ::pictures::Picture;

use crate::{FOX, ml, ml_with_stdin, text};

fn picture(folder: &tempfile::TempDir, name: &str) -> String {
    let path = folder.path().join(name);
    let bytes = Picture::new(2, 1, vec![9; 6]).unwrap().to_png(&[]).unwrap();
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_model_that_does_not_see_refuses_pictures_by_name_however_they_come() {
    let folder = tempfile::tempdir().unwrap();
    let fox = picture(&folder, "fox.png");
    let messages = folder.path().join("chat.json");
    let part = serde_json::json!({"type": "image", "path": fox});
    let chat = serde_json::json!([{"role": "user", "content": [part]}]);
    fs::write(&messages, chat.to_string()).unwrap();
    for arguments in [
        &["generate", "--image", &fox, FOX][..],
        &["generate", "--raw", "--image", &fox, FOX],
        &["generate", "--messages", messages.to_str().unwrap()],
        &["classify", "--quiet", "--image", &fox, "--labels", "a,b", FOX],
        &["inspect", "--image", &fox, FOX],
        &["chat", "--image", &fox],
    ] {
        let output = ml(arguments);
        let error = text(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(error.contains("images"), "{arguments:?}: {error}");
        assert!(error.contains("not supported"), "{arguments:?}: {error}");
    }
    let output = ml_with_stdin(&["chat", "--quiet"], format!("/image {fox}\nhi\n").as_bytes());
    assert!(text(&output.stderr).contains("images"), "{}", text(&output.stderr));
}

#[test]
fn a_model_that_does_not_hear_refuses_sounds_by_name_however_they_come() {
    let folder = tempfile::tempdir().unwrap();
    let talk = folder.path().join("talk.wav");
    fs::write(&talk, b"RIFF").unwrap();
    let talk = talk.to_str().unwrap();
    let messages = folder.path().join("chat.json");
    let part = serde_json::json!({"type": "audio", "path": talk});
    let chat = serde_json::json!([{"role": "user", "content": [part]}]);
    fs::write(&messages, chat.to_string()).unwrap();
    for arguments in [
        &["generate", "--audio", talk, FOX][..],
        &["generate", "--raw", "--audio", talk, FOX],
        &["generate", "--messages", messages.to_str().unwrap()],
        &["classify", "--quiet", "--audio", talk, "--labels", "a,b", FOX],
        &["inspect", "--audio", talk, FOX],
        &["chat", "--audio", talk],
    ] {
        let output = ml(arguments);
        let error = text(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(error.contains("audio"), "{arguments:?}: {error}");
        assert!(error.contains("not supported"), "{arguments:?}: {error}");
    }
    let output = ml_with_stdin(&["chat", "--quiet"], format!("/audio {talk}\nhi\n").as_bytes());
    assert!(text(&output.stderr).contains("audio"), "{}", text(&output.stderr));
    let absent = ml(&["generate", "--audio", "absent.wav", FOX]);
    assert!(text(&absent.stderr).contains("absent.wav"), "{}", text(&absent.stderr));
}
