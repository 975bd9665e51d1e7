//! Several processes that compute the demo model together.

use std::fs;
use std::net::TcpListener;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use crate::{FOX, command, finish, first_bytes, generated, ml, ml_with_stdin, signal, text};

/// What they have to be told on a machine with a GPU.
const ON_CPU: [&str; 2] = ["--backend", "cpu"];

fn launch<'a>(count: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["launch", "-n", count, "--"], arguments, &ON_CPU].concat()
}

#[test]
fn ranks_answer_as_one_process_does() {
    let arguments = ["generate", FOX, "-n", "40", "-t", "0", "--dtype", "f32"];
    let alone = generated(&[&arguments[..], &ON_CPU].concat());
    for count in ["2", "3"] {
        assert_eq!(generated(&launch(count, &arguments)), alone, "{count} ranks");
    }
    let piped = ["generate", "-n", "40", "-t", "0", "--dtype", "f32"];
    let output = ml_with_stdin(&launch("2", &piped), FOX.as_bytes());
    assert_eq!(text(&output.stdout), alone, "{}", text(&output.stderr));
}

#[test]
fn ranks_draw_the_same_without_a_seed() {
    let arguments = launch("3", &["generate", FOX, "-n", "60", "-t", "1.2", "--json"]);
    let output = ml(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 1);
}

#[test]
fn what_fails_in_all_ranks_ends_them_at_once() {
    let started = Instant::now();
    let output = ml(&launch("2", &["generate", FOX, "--model", "/nowhere"]));
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("error: ") && told.contains("/nowhere"), "{told}");
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn what_several_ranks_cannot_do_is_refused() {
    for arguments in [&["serve"][..], &["chat"], &["classify", "a", "--labels", "b,c"]] {
        let output = ml(&launch("2", arguments));
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("several ranks") && told.contains(arguments[0]), "{told}");
    }
    for (arguments, reason) in [
        (&["launch", "-n", "2"][..], "nothing to run"),
        (&["launch", "-n", "1", "--", "generate"], "from 2 to 64"),
        (&["launch", "-n", "2", "claude"], "cannot be used with"),
        (&["launch"], "AGENT"),
    ] {
        let output = ml(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(reason), "{}", text(&output.stderr));
    }
}

/// The processes of a group, started one by one as `mlx.launch` does.
fn by_hand(count: usize, arguments: &[&str]) -> (tempfile::TempDir, Vec<Child>) {
    let folder = tempfile::tempdir().unwrap();
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let hosts: Vec<[String; 1]> =
        listeners.iter().map(|one| [one.local_addr().unwrap().to_string()]).collect();
    drop(listeners);
    let file = folder.path().join("hosts.json");
    fs::write(&file, serde_json::to_string(&hosts).unwrap()).unwrap();
    let start = |rank: usize| {
        let mut command = command(&[arguments, &ON_CPU].concat());
        command.env("MLX_RANK", rank.to_string()).env("MLX_HOSTFILE", &file).spawn().unwrap()
    };
    let ranks = (0..count).map(start).collect();
    (folder, ranks)
}

#[test]
fn ranks_that_others_start_find_each_other() {
    let arguments = ["generate", FOX, "-n", "10", "-t", "0", "--dtype", "f32"];
    let alone = generated(&[&arguments[..], &ON_CPU].concat());
    let (_folder, ranks) = by_hand(2, &arguments);
    let said: Vec<_> = ranks.into_iter().map(finish).collect();
    assert_eq!(said[0].1, alone, "{said:?}");
    // Of several, the first one speaks.
    assert_eq!((said[1].0, said[1].1.as_str(), said[1].2.as_str()), (Some(0), "", ""));
    let output = command(&arguments).env("MLX_RANK", "0").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("MLX_HOSTFILE"), "{}", text(&output.stderr));
}

#[test]
fn a_rank_that_is_killed_ends_the_others_with_an_error() {
    let arguments = ["generate", FOX, "-n", "100000", "--ignore-eos"];
    let (_folder, mut ranks) = by_hand(3, &arguments);
    first_bytes(&mut ranks[0]);
    let started = Instant::now();
    signal(&ranks[2], "-KILL");
    let ends: Vec<_> = ranks.into_iter().map(finish).collect();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    for (rank, (code, _, told)) in ends[..2].iter().enumerate() {
        assert_eq!(*code, Some(1), "rank {rank}: {told}");
        assert!(told.contains("is lost"), "rank {rank}: {told}");
    }
}

#[test]
fn who_ends_the_launcher_ends_all_ranks() {
    let arguments = ["generate", FOX, "-n", "100000", "--ignore-eos"];
    let mut child = command(&launch("2", &arguments)).spawn().unwrap();
    first_bytes(&mut child);
    let started = Instant::now();
    // A terminal sends Ctrl-C to all; a program that ends the launcher says so to it alone.
    signal(&child, "-TERM");
    let (code, _, _) = finish(child);
    assert!(code != Some(0) && started.elapsed() < Duration::from_secs(12), "{code:?}");
    thread::sleep(Duration::from_millis(100));
}
