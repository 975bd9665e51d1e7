//! The binary with the embedded demo model: what a person or a script sees of a generation.

// A helper of a test may panic as the test itself may.
#![allow(clippy::unwrap_used)]

mod bench;
mod channels;
mod chat;
mod classify;
mod constrained;
mod embed;
mod files;
mod generate;
mod home;
mod hosts;
mod hybrids;
mod image;
mod image_flags;
mod inspect;
mod kept;
mod launch;
mod load;
mod managed;
mod models;
mod pictures;
mod quantise;
mod ranks;
mod report;
mod secure;
mod serve;
mod served;
mod setup;
mod several;
#[path = "../shared/mod.rs"]
mod shared;
mod signals;
mod speak;
mod terminal;
mod texts;
mod transcribe;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

const FOX: &str = "Tell me a story about a fox";

/// Longer than any of these takes on a slow machine; a test that hangs fails instead.
const PATIENCE: Duration = Duration::from_secs(60);

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ml"));
    command
        .args(arguments)
        .env_remove("ML_MODEL")
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn ml(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn ml_with_stdin(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = command(arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The text that `arguments` generate, which must succeed.
fn generated(arguments: &[&str]) -> String {
    let output = ml(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Copies parts of the backend's checkpoints, such as `models/qwen3`, into `folder`.
fn copy_parts(parts: [&str; 2], folder: &Path) {
    let parity =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../metal-backend/tests/fixtures/parity");
    for part in parts {
        for entry in fs::read_dir(parity.join(part)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
    }
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&generated(arguments)).unwrap()
}

/// Sends SIGINT, as Ctrl-C does.
fn interrupt(child: &Child) {
    signal(child, "-INT");
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Waits for the end and returns the exit code, what else came on stdout, and stderr.
fn finish(mut child: Child) -> (Option<i32>, String, String) {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("the program did not end");
        }
        thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Reads until the first bytes of text are there.
fn first_bytes(child: &mut Child) -> Vec<u8> {
    let mut buffer = [0; 16];
    let count = child.stdout.as_mut().unwrap().read(&mut buffer).unwrap();
    assert!(count > 0, "the program ended without a word");
    buffer[..count].to_vec()
}
