//! How ranks end with what started them: by signals to it, to all, and without any.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::launch;
use crate::serve::{request, wait_until_ready};
use crate::{FOX, command, finish, first_bytes, signal, text};

/// A launcher and its ranks, in a process group of their own.
fn start(arguments: &[&str]) -> Child {
    command(&launch("2", arguments)).process_group(0).spawn().unwrap()
}

/// A server of two ranks and its address.
fn served(options: &[&str]) -> (Child, String) {
    let arguments = ["serve", "--port", "0", "--log", "off", "--quiet", "--dtype", "f32"];
    let mut child = start(&[&arguments[..], options].concat());
    let mut line = String::new();
    let stderr = child.stderr.as_mut().unwrap();
    BufReader::with_capacity(1, stderr).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").unwrap_or_else(|| panic!("{line}"));
    wait_until_ready(address);
    (child, address.to_owned())
}

/// The folders of the ranks of `launcher` among the processes; none where the system does not tell.
fn ranks(launcher: &Child) -> Vec<PathBuf> {
    let id = launcher.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().map(|id| PathBuf::from("/proc").join(id)).collect()
}

/// Sends a signal to a process, or to a group where the number has a minus.
fn send(name: &str, to: &str) {
    assert!(Command::new("kill").args([name, "--", to]).status().unwrap().success());
}

fn send_to_rank(name: &str, rank: &Path) {
    send(name, rank.file_name().unwrap().to_str().unwrap());
}

fn send_to_all(name: &str, launcher: &Child) {
    send(name, &format!("-{}", launcher.id()));
}

#[test]
fn a_signal_to_all_ranks_lets_requests_end() {
    let (launcher, address) = served(&[]);
    let client = thread::spawn({
        let address = address.clone();
        move || {
            let body = json!({"prompt": FOX, "max_tokens": 800, "ignore_eos": true}).to_string();
            request(&address, "POST", "/v1/completions", &body)
        }
    });
    let started = Instant::now();
    while !request(&address, "GET", "/health", "").contains("\"running\":1") {
        assert!(started.elapsed() < Duration::from_secs(20), "nothing runs");
        thread::sleep(Duration::from_millis(5));
    }
    send_to_all("-TERM", &launcher);
    let answer = client.join().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    let body: Json = serde_json::from_str(body).unwrap();
    assert_eq!(body["usage"]["completion_tokens"], 800);
    let (code, _, told) = finish(launcher);
    assert_eq!((code, told.as_str()), (Some(0), ""));
}

#[test]
fn a_signal_to_all_ranks_or_to_the_launcher_interrupts_a_generation() {
    for (name, is_for_all) in [("-TERM", true), ("-INT", true), ("-INT", false), ("-TERM", false)] {
        let mut launcher = start(&["generate", FOX, "-n", "100000", "--ignore-eos"]);
        first_bytes(&mut launcher);
        match is_for_all {
            true => send_to_all(name, &launcher),
            false => signal(&launcher, name),
        }
        let (code, _, told) = finish(launcher);
        assert_eq!(code, Some(130), "{name} to all: {is_for_all}: {told}");
    }
}

#[test]
fn a_rank_that_hangs_does_not_keep_a_server_from_its_end() {
    // Which rank hangs, and how often the launcher is told to end.
    for (hanging, times) in [(1, 1), (0, 1), (0, 2)] {
        let limit = if times == 1 { "1" } else { "60" };
        let (launcher, _) = served(&["--drain-timeout", limit]);
        let ranks = ranks(&launcher);
        if ranks.len() < 2 {
            return;
        }
        send_to_rank("-STOP", &ranks[hanging]);
        let started = Instant::now();
        for _ in 0..times {
            signal(&launcher, "-TERM");
            thread::sleep(Duration::from_millis(300));
        }
        let (code, _, told) = finish(launcher);
        let case = format!("rank {hanging}, {times}: {code:?} {told}");
        assert!(started.elapsed() < Duration::from_secs(25), "{case}");
        assert_eq!(code == Some(0), hanging == 1, "{case}");
        assert_eq!(told.contains("rank 0 does not end"), hanging == 0, "{case}");
        assert!(ranks.iter().all(|rank| !rank.exists()), "{case}");
    }
}

#[test]
fn ranks_end_with_a_launcher_that_is_killed() {
    let (mut launcher, _) = served(&[]);
    let ranks = ranks(&launcher);
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    let started = Instant::now();
    // One that has ended may wait for whoever takes in orphans.
    let runs = |rank: &PathBuf| {
        let stat = fs::read_to_string(rank.join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    while ranks.iter().any(runs) {
        assert!(started.elapsed() < Duration::from_secs(10), "{ranks:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_rank_that_is_killed_is_named() {
    let mut launcher = start(&["generate", FOX, "-n", "100000", "--ignore-eos"]);
    first_bytes(&mut launcher);
    let ranks = ranks(&launcher);
    let Some(second) = ranks.get(1) else { return };
    send_to_rank("-KILL", second);
    let (code, _, told) = finish(launcher);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("rank 1 was ended by the signal 9"), "{told}");
}

#[test]
fn what_cannot_be_launched_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts.json");
    let host = json!({"ssh": "localhost", "ips": ["127.0.0.1"]});
    fs::write(&file, json!([host, host]).to_string()).unwrap();
    let hosts = ["launch", "--hostfile", file.to_str().unwrap()];
    for (arguments, reason) in [
        (&["launch", "-n", "2", "--", "launch", "codex"][..], "`ml launch` does not run"),
        (&["launch", "-n", "2", "--", "setup", "cuda"], "`ml setup` does not run"),
        (&[&hosts[..], &["--starting-port", "0", "--", "generate"]].concat(), "1..=65535"),
        (&[&hosts[..], &["--cwd", "/nowhere", "--", "generate"]].concat(), "--cwd /nowhere"),
    ] {
        let output = crate::ml(arguments);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(reason), "{arguments:?}: {told}");
    }
    let file = folder.path().join("one.json");
    fs::write(&file, "[[\"127.0.0.1:7000\"]]").unwrap();
    let mut one = command(&["generate", FOX]);
    let output = one.env("MLX_RANK", "0").env("MLX_HOSTFILE", &file).output().unwrap();
    let told = text(&output.stderr);
    assert!(told.contains("one.json: 1 addresses") && !told.contains("--ranks"), "{told}");
}
