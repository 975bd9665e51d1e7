//! Files that the program writes and reads, where the system makes it hard.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{FOX, command, finish, ml_with_stdin, text};

/// `ml` under `sh`, which does `setting` first.
fn under(setting: &str, arguments: &[&str], input: &str) -> (Option<i32>, String) {
    let script = format!("{setting}; printf '%s' \"$INPUT\" | \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_ml")])
        .args(arguments)
        .env("INPUT", input)
        .env_remove("ML_MODEL")
        .output()
        .unwrap();
    (output.status.code(), text(&output.stderr))
}

/// The names in a folder.
fn count(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn a_conversation_that_does_not_fit_on_the_disk_leaves_the_earlier_one_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.json");
    let earlier = r#"[{"role": "user", "content": "what was said before"}]"#;
    fs::write(&path, earlier).unwrap();
    let turns = format!("{}\n/save {}\n", "fox ".repeat(600), path.display());
    // No file may grow beyond a block or two of this unit, which is less than the conversation has.
    let full = "trap '' XFSZ; ulimit -f 1";
    let (code, error) = under(full, &["chat", "-q", "-n", "1"], &turns);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("chat.json: file too large"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), earlier);
    assert_eq!(count(folder.path()), 1, "a part of a file is left");
}

#[test]
fn a_new_file_has_the_mode_that_the_umask_leaves() {
    let folder = tempfile::tempdir().unwrap();
    for (umask, expected) in [("022", 0o644), ("077", 0o600), ("007", 0o660)] {
        for name in ["chat.json", "attention.safetensors", "attention.svg"] {
            let path = folder.path().join(format!("{umask}-{name}"));
            let file = path.to_str().unwrap();
            let flag = format!("--{}", name.rsplit('.').next().unwrap());
            let inspect = ["inspect", "-q", "--raw", "a b", &flag, file];
            let turns = format!("{FOX}\n/save {file}\n");
            let (code, error) = match name {
                "chat.json" => under(&format!("umask {umask}"), &["chat", "-q", "-n", "1"], &turns),
                _ => under(&format!("umask {umask}"), &inspect, ""),
            };
            assert_eq!(code, Some(0), "{error}");
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(mode, expected, "{file}");
        }
    }
}

#[test]
fn tensors_go_through_a_link_and_not_over_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let (link, target) = (folder.path().join("link"), folder.path().join("target"));
    symlink("target", &link).unwrap();
    fs::write(&target, "old").unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
    let inspect = |path: &Path| {
        let arguments = ["inspect", "-q", "--raw", "a b", "--safetensors", path.to_str().unwrap()];
        ml_with_stdin(&arguments, b"")
    };
    assert!(inspect(&link).status.success());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(safetensors::SafeTensors::deserialize(&fs::read(&target).unwrap()).is_ok());
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o7777, 0o640);

    let device = folder.path().join("device");
    symlink("/dev/full", &device).unwrap();
    let output = inspect(&device);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("device: is a device, expected a regular file"), "{error}");
    assert!(fs::symlink_metadata(&device).unwrap().is_symlink());
}

#[test]
fn a_chat_does_not_wait_for_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for command_line in ["/load", "/save"] {
        let turns = format!("{command_line} {}\n", pipe.display());
        let mut child = command(&["chat", "-q"]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(turns.as_bytes()).unwrap();
        let (code, _, error) = finish(child);
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains("pipe: is a pipe, expected a regular file"), "{error}");
    }
}

#[test]
fn flags_read_what_a_shell_puts_in_place_of_a_file() {
    let script = r#""$0" generate -q -t 0 -n 8 --prompt-file <(printf '%s\n' "$1")"#;
    let output = Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_ml"), FOX])
        .env_remove("ML_MODEL")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        crate::generated(&["generate", "-q", "-t", "0", "-n", "8", FOX])
    );
}
