//! Programs for tests, written as shell scripts.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Writes an executable script.
///
/// A child process writes it: a file that this process has open for writing cannot
/// be run, and another test's child might inherit it open.
pub(crate) fn program(dir: &Path, name: &str, body: &str) -> PathBuf {
    let path = dir.join(name);
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod +x \"$0\""])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = writer.stdin.take().unwrap();
    write!(input, "#!/bin/sh\n{body}\n").unwrap();
    drop(input);
    assert!(writer.wait().unwrap().success());
    path
}
