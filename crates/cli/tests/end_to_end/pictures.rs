//! Pictures on the command line, with a model that does not see.

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
