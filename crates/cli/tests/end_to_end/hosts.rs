//! Ranks on several hosts, where a program that stands for `ssh` runs everything here.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::serve::{request, wait_until_ready};
use crate::{FOX, command, finish, first_bytes, generated, ml, signal, text};

const ON_CPU: [&str; 4] = ["--backend", "cpu", "--dtype", "f32"];

/// It runs the command that it is given for a host as a login shell there does, and notes who it
/// is.
const SSH: &str = r#"#!/bin/sh
folder=$(dirname "$0")
[ "$1 $2 $3 $4" = "-T -o BatchMode=yes --" ] || { echo "unexpected: $*" >&2; exit 255; }
echo "$5" >> "$folder/hosts"
echo $$ > "$folder/pid.$5"
exec sh -c "$6"
"#;

/// A folder with `ssh` and a file of hosts that are all here, and a free port with free ones behind
/// it.
fn hosts(names: &[&str]) -> (TempDir, u16) {
    let folder = tempfile::tempdir().unwrap();
    let ssh = folder.path().join("ssh");
    fs::write(&ssh, SSH).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let host = |name: &&str| json!({"ssh": name, "ips": ["127.0.0.1"]});
    let written: Vec<_> = names.iter().map(host).collect();
    fs::write(folder.path().join("hosts.json"), json!(written).to_string()).unwrap();
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let ports = (0..100).map(|_| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    });
    let count = names.len() as u16;
    let port = ports.filter(|port| *port < 65000);
    let port = port.into_iter().find(|port| (0..count).all(|rank| is_free(port + rank)));
    (folder, port.expect("ports are free"))
}

fn start(hosts: &(TempDir, u16), arguments: &[&str]) -> Child {
    let (folder, port) = hosts;
    let file = folder.path().join("hosts.json");
    let port = port.to_string();
    let launch = ["launch", "--hostfile", file.to_str().unwrap(), "--starting-port", &port, "--"];
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    command(&[&launch[..], arguments, &ON_CPU].concat()).env("PATH", path).spawn().unwrap()
}

#[test]
fn ranks_behind_ssh_answer_as_one_process_does() {
    // Words that a shell would change.
    let prompt = "it's a \"$HOME\" `fox`;\n\\ *";
    let arguments = ["generate", prompt, "-n", "20", "-t", "0"];
    let alone = generated(&[&arguments[..], &ON_CPU].concat());
    let hosts = hosts(&["one", "127.0.0.1", "two"]);
    let (code, said, told) = finish(start(&hosts, &arguments));
    assert_eq!((code, said), (Some(0), alone), "{told}");
    let mut names = fs::read_to_string(hosts.0.path().join("hosts")).unwrap();
    // The one that is this host needs no ssh.
    names = names.lines().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    assert_eq!(names, "onetwo");
}

#[test]
fn a_rank_on_another_host_that_dies_ends_all() {
    let hosts = hosts(&["one", "two"]);
    let mut child = start(&hosts, &["generate", FOX, "-n", "100000", "--ignore-eos"]);
    first_bytes(&mut child);
    let started = Instant::now();
    // What stands for ssh became the shell on the host, whose child is the rank.
    let shell = fs::read_to_string(hosts.0.path().join("pid.two")).unwrap();
    let killed = std::process::Command::new("kill").args(["-KILL", shell.trim()]).status();
    assert!(killed.unwrap().success());
    let (code, _, told) = finish(child);
    assert!(code != Some(0), "{told}");
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    let again = started;
    while !(0..2).all(|rank| TcpListener::bind(("127.0.0.1", hosts.1 + rank)).is_ok()) {
        assert!(again.elapsed() < Duration::from_secs(30), "a rank is still there");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_server_of_hosts_ends_with_its_launcher() {
    let hosts = hosts(&["one", "two"]);
    let mut child = start(&hosts, &["serve", "--port", "0", "--log", "off", "--quiet"]);
    let mut line = String::new();
    let stderr = child.stderr.as_mut().unwrap();
    BufReader::with_capacity(1, stderr).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").unwrap_or_else(|| panic!("{line}"));
    wait_until_ready(address);
    let body = json!({"prompt": FOX, "max_tokens": 2}).to_string();
    assert!(request(address, "POST", "/v1/completions", &body).starts_with("HTTP/1.1 200"));
    signal(&child, "-TERM");
    let (code, _, told) = finish(child);
    assert!(told.is_empty(), "{code:?} {told}");
}

#[test]
fn hosts_that_cannot_be_meant_are_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts.json");
    let path = file.to_str().unwrap();
    let reached = json!([{"ssh": "a", "ips": ["192.0.2.1"]}, {"ssh": "b", "ips": ["192.0.2.2"]}]);
    fs::write(&file, reached.to_string()).unwrap();
    for (arguments, expected) in [
        (&["launch", "--hostfile", path, "--", "generate", "x"][..], "pass --insecure-ranks"),
        (&["launch", "--hostfile", path, "--insecure-ranks"], "nothing to run"),
        (&["launch", "--hostfile", "/nowhere", "--", "generate"], "/nowhere"),
        (&["launch", "--hostfile", path, "-n", "2", "--", "generate"], "cannot be used with"),
        (&["launch", "--hostfile", path, "codex"], "cannot be used with"),
        (
            &["launch", "-n", "2", "--starting-port", "7000", "--", "generate"],
            "--starting-port says nothing without --hostfile",
        ),
        (
            &["launch", "-n", "2", "--program", "/bin/ml", "--", "generate"],
            "--program says nothing without --hostfile",
        ),
        (
            &["launch", "codex", "--insecure-ranks"],
            "--insecure-ranks says nothing without --hostfile",
        ),
        (&["launch", "--cwd", "/", "--", "generate"], "--cwd says nothing without --hostfile"),
        (&["launch", "--", "generate"], "nothing to launch: name an agent"),
    ] {
        let output = ml(arguments);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(expected), "{arguments:?}: {told}");
    }
    // A rank that is started by hand asks for leave as well.
    let output = command(&["generate", "x"])
        .env("MLX_RANK", "0")
        .env("ML_RANK_ADDRESSES", "127.0.0.1:7000,192.0.2.1:7001")
        .output()
        .unwrap();
    let told = text(&output.stderr);
    assert!(told.contains("192.0.2.1:7001") && told.contains("ML_INSECURE_RANKS=1"), "{told}");
}
