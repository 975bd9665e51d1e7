//! Answers with control characters: a terminal shows them and obeys none, a pipe gets them as they
//! are.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;

use crate::channels::GptOss;
use crate::shared::terminal;
use crate::{command, finish, generated, text};

/// Sets a title, with the 7-bit and the 8-bit beginning of such a sequence, and clears the screen.
const HOSTILE: &str = r"\x1b\]0;owned\x07\x{9b}2J\x7f\x08\r\u{202e}é";
const RAW: &str = "\x1b]0;owned\x07\u{9b}2J\x7f\x08\r\u{202e}é";

/// Returns the text on a terminal whose other side `command` has, with `input` on its stdin.
fn shown(mut command: Command, mut terminal: File, input: &[u8]) -> String {
    let mut child = command.env("TERM", "xterm").stdin(Stdio::piped()).spawn().unwrap();
    // It holds the terminal's other side open here.
    drop(command);
    child.stdin.take().unwrap().write_all(input).unwrap();
    // The read fails once nobody has the other side open.
    let shown = thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = terminal.read_to_end(&mut bytes);
        bytes
    });
    let (code, _, error) = finish(child);
    assert_eq!(code, Some(0), "{error}");
    text(&shown.join().unwrap())
}

/// Returns the text on a terminal that is the stdout of `arguments`.
fn on_stdout(arguments: &[&str], input: &[u8]) -> String {
    let (terminal, side) = terminal();
    let mut command = command(arguments);
    command.stdout(side);
    shown(command, terminal, input)
}

/// That nothing but ends of lines is left for the terminal to obey.
fn assert_harmless(shown: &str) {
    let obeyed = shown.replace("\r\n", "").chars().find(|c| c.is_control());
    assert_eq!(obeyed, None, "{shown:?}");
}

#[test]
fn a_terminal_shows_an_answers_control_characters_and_obeys_none() {
    let generate = ["generate", "-q", "-t", "0", "--regex", HOSTILE, "x"];
    let said = on_stdout(&generate, b"");
    assert_harmless(&said);
    assert_eq!(said, "␛]0;owned␇\u{fffd}2J␡␈␍\u{202e}é\r\n");
    let chat = ["chat", "-q", "-t", "0", "--regex", HOSTILE];
    assert_eq!(on_stdout(&chat, b"x\n"), said);
    for more in ["--json", "--logprobs", "--raw"] {
        let said = on_stdout(&[&generate[..6], &[more, "x"]].concat(), b"");
        assert_harmless(&said);
        assert!(said.contains('␡'), "{more}: {said}");
    }
}

#[test]
fn a_pipe_gets_the_bytes_of_an_answer_as_they_are() {
    let generate = ["generate", "-q", "-t", "0", "--regex", HOSTILE, "x"];
    assert_eq!(generated(&generate), format!("{RAW}\n"));
}

#[test]
fn reasoning_on_a_terminal_is_shown_and_not_obeyed() {
    let model = GptOss::new();
    let grammar = model.path("hostile.lark");
    let rules = r#"start: <|channel|> "analysis" <|message|> /Hm\x1b\[2J\x{9b}m/ <|end|> <|start|> "assistant" <|channel|> "final" <|message|> "Blue."
"#;
    fs::write(&grammar, rules).unwrap();
    let folder = model.path("");
    let arguments = ["generate", "--model", &folder, "--grammar", &grammar, "-t", "0", "-q", "x"];
    let (terminal, side) = terminal();
    let mut command = command(&arguments);
    command.env("NO_COLOR", "1").stderr(side);
    let told = shown(command, terminal, b"");
    assert_harmless(&told);
    assert!(told.contains("Hm␛[2J\u{fffd}m"), "{told:?}");
}
