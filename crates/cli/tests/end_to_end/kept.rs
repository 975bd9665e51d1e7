//! Prefixes on disk: a server that starts anew goes on from what the last one computed.

use std::path::Path;

use serde_json::{Value, json};

use crate::serve::{answered, serve_by, wait_until_ready};
use crate::{FOX, command, finish, interrupt, ml_with_stdin, text};

/// Starts a server that keeps prefixes in `folder`, asks it once and ends it: its answer.
fn asked(folder: &Path, more: &[&str]) -> Value {
    let folder = folder.to_str().unwrap();
    let arguments = [&["--prefix-cache-dir", folder], more].concat();
    let (child, address) = serve_by(command(&[]), &arguments);
    wait_until_ready(&address);
    let story = format!("{FOX}. {}", "It runs through the snow and over the hills. ".repeat(12));
    let messages = json!([{"role": "user", "content": story}]);
    let chat = json!({"messages": messages, "max_tokens": 8, "temperature": 0});
    let said = answered(&address, "/v1/chat/completions", &chat);
    interrupt(&child);
    assert_eq!(finish(child).0, Some(0));
    said
}

#[test]
fn a_server_that_starts_anew_goes_on_from_the_prompts_of_the_last_one() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("prefixes");
    let cached = |said: &Value| said["usage"]["prompt_tokens_details"]["cached_tokens"].clone();
    let first = asked(&folder, &[]);
    assert_eq!(cached(&first), 0, "{first}");
    let again = asked(&folder, &[]);
    assert!(cached(&again).as_u64() >= Some(64), "{again}");
    assert_eq!(again["choices"][0]["message"], first["choices"][0]["message"]);
    let packed = asked(&folder, &["--kv-bits", "8"]);
    assert_eq!(cached(&packed), 0, "{packed}");
}

#[test]
fn a_chat_keeps_to_the_room_on_disk_and_tells_what_it_leaves_aside_unless_it_is_quiet() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("prefixes");
    let files = || -> Vec<std::path::PathBuf> {
        let models = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let models = models.filter(|path| path.is_dir());
        let files = models.flat_map(|model| std::fs::read_dir(model).unwrap());
        files.map(|entry| entry.unwrap().path()).collect()
    };
    let story = format!("{FOX}. {}", "It runs through the snow. ".repeat(12));
    let chat = |more: &[&str]| {
        let own = ["chat", "-n", "8", "-t", "0", "--prefix-cache-dir", folder.to_str().unwrap()];
        let output = ml_with_stdin(&[&own, more].concat(), story.as_bytes());
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
    };
    let (said, _) = chat(&[]);
    let damaged = files();
    assert!(!damaged.is_empty());
    damaged.iter().for_each(|file| std::fs::write(file, "damaged").unwrap());
    let (again, told) = chat(&[]);
    assert_eq!(again, said);
    let names = |told: &str| damaged.iter().all(|file| told.contains(file.to_str().unwrap()));
    assert!(names(&told), "{told}");
    let (again, told) = chat(&["--quiet"]);
    assert_eq!((again, told), (said, String::new()));
    chat(&["--prefix-cache-disk", "0"]);
    assert_eq!(files(), <[&Path; 0]>::default());
}

#[test]
fn what_cannot_be_kept_is_refused_by_the_names_of_the_flags() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("a file");
    std::fs::write(&folder, "").unwrap();
    let folder = folder.to_str().unwrap();
    let output = ml_with_stdin(&["chat", "-q", "--prefix-cache-dir", folder], FOX.as_bytes());
    assert!(!output.status.success() && text(&output.stderr).contains(folder));
    let none = ["chat", "-q", "--prefix-cache", "0", "--prefix-cache-dir", folder];
    let output = ml_with_stdin(&none, FOX.as_bytes());
    assert!(text(&output.stderr).contains("--prefix-cache-dir"), "{}", text(&output.stderr));
}
