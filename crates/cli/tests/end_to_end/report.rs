//! `ml report`: what its file has, and what becomes of steps that fail.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::{command, finish, interrupt, text};

/// A quick report on the CPU, in `folder`, with time enough for a build without optimisation on a
/// machine that is busy.
fn report(folder: &Path) -> Command {
    report_within("600", folder)
}

fn report_within(seconds: &str, folder: &Path) -> Command {
    let mut command = command(&["report", "--quick", "--backend", "cpu", "--budget", seconds]);
    command.current_dir(folder);
    command
}

fn written(folder: &Path) -> (String, Value) {
    let text = fs::read_to_string(folder.join("ml-report.json")).unwrap();
    let value = serde_json::from_str(&text).unwrap();
    (text, value)
}

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_report_says_that_nothing_is_wrong_and_tells_of_nobody() {
    let folder = TempDir::with_prefix("quinceytree").unwrap();
    let home = folder.path().join("quinceyhome");
    let mut command = report(folder.path());
    let output = command
        .env("HOME", &home)
        .env("HF_HUB_CACHE", home.join("hub"))
        .env("USER", "quinceymorris")
        .env("LOGNAME", "quinceymorris")
        .output()
        .unwrap();
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}{told}");
    assert!(said.starts_with("Nothing is wrong: "), "{said}");
    assert!(said.ends_with(" The report is in ml-report.json.\n"), "{said}");
    let (text, report) = written(folder.path());
    assert!(!text.contains("quincey") && !text.contains(&*home.to_string_lossy()), "{text}");
    let host = Command::new("uname").arg("-n").output().unwrap().stdout;
    let host = String::from_utf8(host).unwrap();
    assert!(host.trim().len() < 3 || !text.contains(host.trim()), "{text}");
    assert_eq!(report["wrong"], Value::Array(Vec::new()));
    assert_eq!((report["device"].as_str(), report["quick"].as_bool()), (Some("cpu"), Some(true)));
    let answers = report["answers"].as_array().unwrap();
    // Three models, in f32 and bf16 where the CPU has kernels of our own.
    let has_own = report["doctor"]["system"]["cpu_kernels"] != "MLX's";
    assert_eq!(answers.len(), if has_own { 6 } else { 3 }, "{text}");
    for answer in answers {
        let difference = answer["largest_difference"].as_f64().unwrap();
        assert!(difference < answer["allowed_difference"].as_f64().unwrap(), "{answer}");
        assert!(answer["tokens"].as_u64().unwrap() > 8, "{answer}");
    }
    assert!(report["memory"]["refused"].as_str().unwrap().contains("prompt"), "{text}");
    // MLX's kernels on a CPU may take longer than a measurement does.
    let left_out = report["left_out"].as_array().unwrap();
    let is_left_out =
        left_out.iter().any(|step| step.as_str().unwrap().contains(", 1 layer on cpu"));
    let speed = report["speeds"][0]["answer_tokens_per_second"].as_f64();
    assert!(speed.is_some_and(|speed| speed > 0.0) || (is_left_out && !has_own), "{text}");
}

#[test]
fn steps_that_fail_are_told_and_do_not_end_the_report() {
    let folder = tempfile::tempdir().unwrap();
    // No kernels of ours are loaded by that name, so that what computes with them fails.
    let output = report(folder.path()).env("ML_CPU_KERNELS", "none of these").output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let (text, report) = written(folder.path());
    let wrong = report["wrong"].as_array().unwrap();
    let told = |step: &str| {
        let finding = wrong.iter().find(|finding| finding["step"].as_str() == Some(step));
        finding.map(|finding| finding["what"].as_str().unwrap_or_default().to_owned())
    };
    for step in ["mamba on cpu, our kernels", "memory on cpu"] {
        let what = told(step).unwrap_or_else(|| panic!("{step}: {text}"));
        assert!(what.contains("ML_CPU_KERNELS is `none of these`"), "{what}");
        assert!(said.contains(&format!("  {step}: it ended with the code")), "{said}");
    }
    assert!(said.contains(" things wrong, of "), "{said}");
}

#[test]
fn an_interrupted_report_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = report(folder.path()).spawn().unwrap();
    // The first step is over.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("doctor"), "{first}");
    interrupt(&child);
    let (code, said, _) = finish(child);
    assert_eq!((code, said.as_str()), (Some(130), ""));
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn a_place_that_takes_no_file_is_told_before_anything_is_tried() {
    let output = crate::ml(&["report", "--output", "/no/such/folder/report.json"]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert_eq!(told, "error: /no/such/folder/report.json: its folder is not there\n");
    let output = crate::ml(&["report", "--output", "/"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "error: /: is a folder, expected a regular file\n");
}

#[test]
fn a_report_that_compared_nothing_is_no_good_one() {
    let folder = tempfile::tempdir().unwrap();
    let output = report_within("29", folder.path()).output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("Nothing could be compared. "), "{said}");
    let (text, report) = written(folder.path());
    let left_out = report["left_out"].as_array().unwrap();
    let told = |step: &Value| step.as_str().unwrap().ends_with("less than 30 s were left");
    assert!(!left_out.is_empty() && left_out.iter().all(told), "{text}");
    assert_eq!(report["wrong"], Value::Array(Vec::new()));
}
