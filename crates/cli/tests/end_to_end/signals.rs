//! Generations that end early: Ctrl-C, SIGTERM, a closed pipe, a timeout.

#[cfg(target_os = "linux")]
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::{FOX, command, finish, first_bytes, interrupt, ml, signal, text};

#[test]
fn a_closed_stdout_ends_the_program_quietly() {
    let mut child = command(&["generate", "--ignore-eos", FOX]).spawn().unwrap();
    first_bytes(&mut child);
    drop(child.stdout.take());
    let (code, _, error) = finish(child);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(error, "");
}

#[test]
fn ctrl_c_in_decode_keeps_the_text_and_exits_with_130() {
    let mut child = command(&["generate", "--ignore-eos", FOX]).spawn().unwrap();
    let first = first_bytes(&mut child);
    interrupt(&child);
    let (code, _, error) = finish(child);
    assert_eq!(code, Some(130), "{error}");
    assert!(!first.is_empty());
    assert!(!error.contains("panicked") && !error.contains("error"), "{error}");
}

#[test]
fn ctrl_c_in_prefill_exits_with_130() {
    let prompt = "fox ".repeat(1500);
    let arguments = ["generate", "--raw", "--prefill-chunk", "1", "--ignore-eos", &prompt];
    let child = command(&arguments).spawn().unwrap();
    thread::sleep(Duration::from_millis(400));
    interrupt(&child);
    let (code, _, error) = finish(child);
    assert_eq!(code, Some(130), "{error}");
}

#[test]
fn sigterm_is_like_ctrl_c() {
    let mut child = command(&["generate", "--ignore-eos", FOX]).spawn().unwrap();
    first_bytes(&mut child);
    signal(&child, "-TERM");
    assert_eq!(finish(child).0, Some(130));
}

#[test]
#[cfg(target_os = "linux")]
fn what_ignores_hangups_goes_on() {
    let told = command(&["generate", "--ignore-eos", FOX]);
    let mut nohup = Command::new("sh");
    nohup.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(told.get_program());
    nohup.args(told.get_args()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = nohup.spawn().unwrap();
    first_bytes(&mut child);
    signal(&child, "-HUP");
    thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "it has ended");
    interrupt(&child);
    assert_eq!(finish(child).0, Some(130));
}

#[test]
fn ctrl_c_in_json_mode_still_prints_the_object() {
    let child = command(&["generate", "--ignore-eos", "--json", FOX]).spawn().unwrap();
    thread::sleep(Duration::from_millis(400));
    interrupt(&child);
    let (code, out, error) = finish(child);
    assert_eq!(code, Some(130), "{error}");
    if !out.is_empty() {
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["finish_reason"], "cancelled");
    }
}

#[test]
fn a_timeout_keeps_the_text_and_fails() {
    let output = ml(&["generate", "--ignore-eos", "--timeout", "0.2", FOX]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!output.stdout.is_empty());
    assert!(text(&output.stderr).contains("--timeout"));
}
