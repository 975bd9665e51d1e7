//! `ml chat` from a pipe and at a terminal.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;

use serde_json::Value;

use crate::shared::terminal;
use crate::{FOX, command, finish, ml_with_stdin, text};

#[test]
fn a_piped_chat_takes_each_line_as_a_turn() {
    let turns = format!("{FOX}\n\n/stats\n{FOX}\\\nand an owl\n");
    let output = ml_with_stdin(&["chat", "-t", "0", "-n", "6"], turns.as_bytes());
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{error}");
    assert!(!out.contains(">>>") && !out.contains('\x1b'), "{out}");
    assert_eq!(error.matches("decode ").count(), 3, "{error}");
    assert!(error.contains("2 messages"), "{error}");
}

#[test]
fn a_piped_chat_saves_what_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.json");
    let turns = format!("{FOX}\n/save {}\n/bye\nnot read\n", path.display());
    let output = ml_with_stdin(&["chat", "-q", "-t", "0", "-n", "6"], turns.as_bytes());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let saved: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(saved[0]["content"], FOX);
    assert_eq!(format!("{}\n", saved[1]["content"].as_str().unwrap()), text(&output.stdout));
    assert_eq!(saved.as_array().unwrap().len(), 2);
}

#[test]
fn a_piped_chat_ends_with_its_first_error() {
    let output = ml_with_stdin(&["chat", "-q"], b"/frobnicate\nhello\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert!(text(&output.stderr).starts_with("error: unknown command /frobnicate"));
}

#[test]
fn a_turn_is_computed_from_where_the_last_one_ended() {
    let turns = format!("{FOX}\n{FOX} and an owl\nAnd then?\n");
    let run = |arguments: &[&str]| {
        // In bf16, tiles sum a prompt in another order than vectors sum the steps that were kept.
        let arguments = [&["chat", "-t", "0", "-n", "60", "--dtype", "f32"], arguments].concat();
        let output = ml_with_stdin(&arguments, turns.as_bytes());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let error = text(&output.stderr);
        // `prompt 124 tokens (64 cached), …`
        let cached = error.lines().filter(|line| line.starts_with("prompt ")).map(|line| {
            let count = line.split_once(" (")?.1.split_once(" cached)")?.0;
            count.parse::<usize>().ok()
        });
        (text(&output.stdout), cached.collect::<Vec<_>>())
    };
    let (answers, cached) = run(&[]);
    assert_eq!(cached.len(), 3, "{cached:?}");
    assert_eq!(cached[0], None);
    assert!(cached[1] >= Some(64) && cached[2] > cached[1], "{cached:?}");
    assert_eq!(run(&["--prefix-cache", "0"]), (answers, vec![None; 3]));
}

#[test]
fn commands_say_what_they_did_and_turns_can_be_dropped() {
    let turns = format!(
        "/set temperature 0\n{FOX}\nAnd then?\n/drop\n/show\n/set\n/model\n/system Be brief.\n/clear\n/drop\n"
    );
    let output = ml_with_stdin(&["chat", "-n", "4"], turns.as_bytes());
    let error = text(&output.stderr);
    // There is nothing to drop at the end.
    assert_eq!(output.status.code(), Some(2));
    for told in [
        "temperature is 0\n",
        "cut off (length): --max-tokens allows 4 tokens",
        "2 messages forgotten, 2 messages left",
        "of 2048 tokens in 2 messages",
        "\nmax-tokens           4 ",
        "\ntop-k                - ",
        "demo (embedded)\n",
        "the system message is changed",
        "the conversation is empty: 2 messages forgotten",
        "error: the conversation has 0 turns",
    ] {
        assert!(error.contains(told), "{told:?} is not in {error}");
    }
}

#[test]
fn a_chat_goes_on_with_another_model() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/demo-model");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.json");
    let turns = format!("{FOX}\n/model {model}\nAnd then?\n/save {}\n", path.display());
    let output = ml_with_stdin(&["chat", "-q", "-t", "0", "-n", "4"], turns.as_bytes());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let saved: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!((saved[0]["content"].as_str(), saved.as_array().unwrap().len()), (Some(FOX), 4));
    // One that is not there does not cost the present one; from a pipe it ends the chat.
    let output = ml_with_stdin(&["chat", "-q"], b"/model /no/such\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/no/such"), "{}", text(&output.stderr));
}

#[test]
fn a_full_context_rolls_where_that_is_asked_for() {
    let question = "fox ".repeat(700);
    let turns = format!("{question}\n").repeat(4);
    let run = |arguments: &[&str]| {
        let arguments = [&["chat", "-t", "0", "-n", "2"], arguments].concat();
        ml_with_stdin(&arguments, turns.as_bytes())
    };
    let full = run(&[]);
    assert_eq!(full.status.code(), Some(1));
    assert!(text(&full.stderr).contains("the context takes 2048"), "{}", text(&full.stderr));
    let rolled = run(&["--rolling-context"]);
    let error = text(&rolled.stderr);
    assert!(rolled.status.success(), "{error}");
    assert!(
        error.contains("oldest turn gave way") || error.contains("oldest turns gave way"),
        "{error}"
    );
}

/// Types `lines` to a chat at a terminal, all at once, and waits for its good end.
fn type_at_a_terminal(mut chat: Command, lines: &str) {
    let (mut terminal, side) = terminal();
    chat.env("TERM", "xterm").stdin(side.try_clone().unwrap()).stdout(side);
    let child = chat.spawn().unwrap();
    // It holds the terminal's other side open here.
    drop(chat);
    terminal.write_all(lines.as_bytes()).unwrap();
    // Else what it prints has no room. The read fails once nobody has the other side open.
    let shown = thread::spawn(move || {
        let _ = terminal.read_to_end(&mut Vec::new());
    });
    let (code, _, error) = finish(child);
    shown.join().unwrap();
    assert_eq!(code, Some(0), "{error}");
}

#[test]
fn what_is_typed_is_kept_for_later_chats_unless_that_is_off() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("state/ml-on-mlx/history");
    let typed = |arguments: &[&str], lines: &str| {
        let mut chat = command(&[&["chat", "-q", "-t", "0", "-n", "1"], arguments].concat());
        chat.env("XDG_STATE_HOME", folder.path().join("state"));
        type_at_a_terminal(chat, lines);
    };
    typed(&["--no-history"], "hidden\n/bye\n");
    assert!(!kept.exists());
    typed(&[], "one\n\"\"\"\ntwo\nlines\n\"\"\"\n/bye\n");
    let text = fs::read_to_string(&kept).unwrap();
    assert_eq!(text, "#V2\none\ntwo\\nlines\n/bye\n");
    let mode = fs::metadata(&kept).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut doctor = command(&["doctor", "--json"]);
    let output = doctor.env("XDG_STATE_HOME", folder.path().join("state")).output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["chat_history"]["file"], *kept.to_str().unwrap());
    assert_eq!(told["chat_history"]["bytes"], text.len());
}

#[test]
fn lines_that_come_at_once_at_a_terminal_are_turns_each() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.json");
    let lines = format!("one\ntwo\nthree\n/save {}\n/bye\n", path.display());
    type_at_a_terminal(command(&["chat", "-q", "-t", "0", "-n", "2"]), &lines);
    let saved: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let asked: Vec<_> =
        saved.as_array().unwrap().iter().filter(|message| message["role"] == "user").collect();
    let asked: Vec<_> = asked.iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(asked, ["one", "two", "three"]);
}
