//! Models that are named and not here: the question at a terminal, what goes without one, and
//! names that are not quite right.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fake_hub::Fault;
use serde_json::json;

use crate::shared::terminal;
use crate::{DEMO, NAME, Place, said};

const STORY: &str = "Tell me a story about a fox";
const SHORT: [&str; 5] = ["-q", "-t", "0", "-n", "8"];

fn run(name: &str) -> Vec<&str> {
    [&["run", name, STORY][..], &SHORT].concat()
}

/// The text at the terminal of a person who types `arguments`, and then `answer`.
fn typed(place: &Place, arguments: &[&str], answer: &[u8]) -> (Option<i32>, String) {
    at_a_terminal(place.command(env!("CARGO_BIN_EXE_ml"), arguments), answer)
}

fn at_a_terminal(mut command: Command, answer: &[u8]) -> (Option<i32>, String) {
    let (mut person, side) = terminal();
    command.stdin(side.try_clone().unwrap()).stdout(side.try_clone().unwrap()).stderr(side);
    let mut child = command.env("TERM", "dumb").spawn().unwrap();
    drop(command);
    person.write_all(answer).unwrap();
    let mut seen = Vec::new();
    // The read fails once nobody has the other side open.
    let _ = person.read_to_end(&mut seen);
    (child.wait().unwrap().code(), String::from_utf8(seen).unwrap())
}

#[test]
fn a_model_that_is_not_here_is_fetched_where_that_is_wanted() {
    let place = Place::new();
    let error = place.failed(&run(NAME));
    assert!(error.contains("`ml pull org/demo` or `--yes` fetches it"), "{error}");
    let expected = place.done(&run(DEMO));
    let (code, answer, error) =
        said(place.start(&[&run(NAME)[..], &["--yes"]].concat()).wait_with_output().unwrap());
    assert_eq!((code, &*answer, &*error), (Some(0), &*expected, ""));
    place.hub.forget();
    assert_eq!(place.done(&run(NAME)), expected);
    assert_eq!(place.hub.seen(), [], "nothing is asked");
}

#[test]
fn a_variable_of_the_environment_is_a_yes() {
    let place = Place::new();
    for (value, fetches) in [("", false), ("0", false), ("1", true)] {
        let mut command = place.command(env!("CARGO_BIN_EXE_ml"), &["info", "--model", NAME]);
        let (code, _, error) = said(command.env("ML_YES", value).output().unwrap());
        assert_eq!(code == Some(0), fetches, "{error}");
        assert_eq!(!place.stored().is_empty(), fetches, "{error}");
    }
}

#[test]
fn a_person_at_a_terminal_is_asked_before_a_model_is_fetched() {
    let place = Place::new();
    let (code, seen) = typed(&place, &run(NAME), b"n\n");
    assert_eq!(code, Some(1), "{seen}");
    assert!(seen.contains("org/demo is not here: fetch ") && seen.contains("[Y/n]"), "{seen}");
    assert!(seen.contains("there is no folder org/demo"), "{seen}");
    assert_eq!(place.stored(), [], "nothing is fetched");
    let (code, seen) = typed(&place, &run(NAME), b"\n");
    assert_eq!(code, Some(0), "{seen}");
    assert!(!place.stored().is_empty());
    let (code, seen) = typed(&place, &run(NAME), b"");
    assert_eq!(code, Some(0), "{seen}");
    assert!(!seen.contains("[Y/n]"), "{seen}");
}

#[test]
fn a_no_is_asked_for_once() {
    let place = Place::new();
    for arguments in [&["serve", "--port", "0", "--model", NAME][..], &["bench", "--model", NAME]] {
        let (code, seen) = typed(&place, arguments, b"n\nn\n");
        assert_eq!(code, Some(1), "{seen}");
        assert_eq!(seen.matches("[Y/n]").count(), 1, "{seen}");
    }
}

#[test]
fn every_command_that_takes_a_model_tells_how_to_fetch_it() {
    let place = Place::new();
    for arguments in [
        &["generate", "--model", NAME, "x"][..],
        &["chat", "--model", NAME],
        &["run", NAME],
        &["classify", "--model", NAME, "x", "--labels", "a,b"],
        &["inspect", "--model", NAME, "x"],
        &["embed", "--model", NAME, "x"],
        &["rerank", "--model", NAME, "x", "y"],
        &["transcribe", "--model", NAME, "x.wav"],
        &["image", "--model", NAME, "x"],
        &["serve", "--model", NAME, "--port", "0"],
        &["serve", "--embedding-model", NAME, "--port", "0"],
        &["serve", "--transcription-model", NAME, "--port", "0"],
        &["bench", "--model", NAME],
        &["bench", "--model", NAME, "--ranks", "2"],
        &["info", "--model", NAME],
        &["quantise", NAME, "no/such/folder"],
        &["generate", "--adapter", NAME, "x"],
        &["service", "install", "--", "--model", NAME],
    ] {
        let error = place.failed(arguments);
        assert!(
            error.contains("`ml pull org/demo` or `--yes` fetches it"),
            "{arguments:?}: {error}"
        );
    }
    assert_eq!(place.hub.seen(), [], "nothing is asked");
}

#[test]
fn without_a_network_a_person_is_told_so_and_not_asked() {
    let place = Place::new();
    let mut command = place.command(env!("CARGO_BIN_EXE_ml"), &run(NAME));
    // Nobody listens on the port of discarded bytes.
    command.env("HF_ENDPOINT", "http://127.0.0.1:9");
    let started = Instant::now();
    let (code, seen) = at_a_terminal(command, b"y\n");
    assert_eq!(code, Some(1), "{seen}");
    assert!(seen.contains("check the network") && !seen.contains("[Y/n]"), "{seen}");
    assert!(started.elapsed() < Duration::from_secs(20), "a person waits");
}

#[test]
fn what_the_disk_has_no_room_for_is_not_asked_for_nor_fetched() {
    let place = Place::new();
    let file = "preprocessor_config.json";
    let file = json!({"rfilename": file, "size": 1_u64 << 60, "blobId": "b".repeat(40)});
    place.hub.change(NAME, |repository| repository.listed.push(file));
    let (code, seen) = typed(&place, &run(NAME), b"y\n");
    assert_eq!(code, Some(1), "{seen}");
    assert!(seen.contains("are to come and") && !seen.contains("[Y/n]"), "{seen}");
    let error = place.failed(&[&run(NAME)[..], &["--yes"]].concat());
    assert!(error.contains("are to come and"), "{error}");
    assert_eq!(place.stored(), [], "nothing is fetched");
}

#[test]
fn a_gated_model_is_told_after_the_yes() {
    let place = Place::new();
    place.hub.always("/resolve/", Fault::refusal(403, "GatedRepo"));
    let (code, seen) = typed(&place, &run(NAME), b"y\n");
    assert_eq!(code, Some(1), "{seen}");
    assert!(seen.contains("its owners let in only who asked"), "{seen}");
    assert!(!seen.contains("is it "), "{seen}");
}

#[test]
fn ctrl_c_keeps_what_came_for_the_next_run() {
    let place = Place::new();
    let begun = place.interrupted(&[&run(NAME)[..], &["--yes"]].concat());
    place.done(&[&run(NAME)[..], &["--yes"]].concat());
    assert_eq!(place.stored(), [None, Some(usize::try_from(begun).unwrap())]);
}

#[test]
fn a_name_that_is_not_quite_right_is_told_the_nearest_ones() {
    let place = Place::new();
    place.done(&["pull", "-q", NAME]);
    for (command, code) in [
        (&["info", "--model", "org/demp"][..], 1),
        (&["info", "--model", "demo"], 2),
        (&["run", "demo", STORY], 2),
        (&["rm", "org/dem"], 1),
        (&["rm", "demo"], 2),
        (&["pull", "org/demmo"], 1),
        (&["run", "org/demmo", STORY, "--yes"], 1),
    ] {
        let (ended, _, error) = said(place.start(command).wait_with_output().unwrap());
        assert!(error.contains("is it org/demo?"), "{command:?}: {error}");
        assert_eq!(ended, Some(code), "{command:?}: {error}");
    }
    let (code, seen) = typed(&place, &["info", "--model", "org/demp"], b"y\n");
    assert_eq!(code, Some(1));
    assert!(seen.contains("the hub has no such repository") && seen.contains("is it org/demo?"));
    for (name, nearest) in [("qwen3.5:5b", "qwen3.5-"), ("lama3.2:1b", "llama3.2-1b")] {
        let (code, _, error) = said(place.start(&["pull", name]).wait_with_output().unwrap());
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(&format!("is it {nearest}")), "{error}");
    }
}

#[test]
fn an_address_is_a_name_and_a_path_is_none() {
    let place = Place::new();
    let page = format!("{}/org/demo/tree/main", place.hub.url());
    let error = place.failed(&["info", "--model", &page]);
    assert!(error.starts_with("error: org/demo is not in the cache"), "{error}");
    let folder =
        place.done(&["pull", "-q", "https://huggingface.co/org/demo/blob/main/config.json"]);
    assert!(folder.contains("models--org--demo"), "{folder}");
    for name in [&page, "hf.co/org/demo", "https://huggingface.co/org/demo"] {
        assert!(place.done(&["info", "--model", name]).contains("qwen3"), "{name}");
    }
    place.hub.forget();
    for path in ["org/fox.gguf", "./org/demo", "org/demo/", "/no/such/folder", "~/org"] {
        let error = place.failed(&["info", "--yes", "--model", path]);
        assert!(
            error.contains(path.trim_end_matches('/')) && !error.contains("ml pull"),
            "{error}"
        );
    }
    assert_eq!(place.hub.seen(), [], "nothing is asked");
}

#[test]
fn a_folder_that_is_there_is_taken_for_no_name() {
    let place = Place::new();
    let work = tempfile::tempdir().unwrap();
    let copy = work.path().join(NAME);
    fs::create_dir_all(&copy).unwrap();
    for file in fs::read_dir(Path::new(DEMO)).unwrap().flatten() {
        if file.path().is_file() {
            fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
    }
    let mut command = place.command(env!("CARGO_BIN_EXE_ml"), &["info", "--yes", "--model", NAME]);
    let (code, out, error) = said(command.current_dir(work.path()).output().unwrap());
    assert_eq!(code, Some(0), "{error}");
    assert!(out.contains("qwen3"), "{out}");
    assert_eq!(place.hub.seen(), [], "nothing is asked");
}
