//! Each program, with the model that lies in the repository.

// A helper of a test may panic as the test itself may.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::process::{Command, Stdio};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/cli/demo-model");

const EMBEDS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../crates/metal-backend/tests/fixtures/embeddings/models/bert"
);

/// The output of `program` with `input` on stdin; it must end well.
fn printed(program: &str, model: &str, input: &str) -> String {
    let mut command = Command::new(program);
    command.arg(model).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_conversation_has_an_answer_for_each_line() {
    let answers =
        printed(env!("CARGO_BIN_EXE_chat"), MODEL, "Tell me a story about a fox\nThank you\n");
    assert!(answers.contains("fox"), "{answers}");
    assert!(answers.trim().lines().count() >= 2, "{answers}");
}

#[test]
fn the_facade_streams_what_it_answers_whole() {
    let answers = printed(env!("CARGO_BIN_EXE_facade"), MODEL, "Tell me a story about a fox\n");
    assert!(answers.contains("fox"), "{answers}");
}

#[test]
fn two_streams_end() {
    let texts = printed(env!("CARGO_BIN_EXE_async_stream"), MODEL, "");
    assert!(texts.contains("first: \"") && texts.contains("second: \""), "{texts}");
}

#[test]
fn a_batch_continues_each_line() {
    let texts = printed(env!("CARGO_BIN_EXE_batch"), MODEL, "Once upon a time\nThe fox said\n");
    for beginning in ["Once upon a time", "The fox said"] {
        let line = texts.lines().find(|line| line.starts_with(beginning));
        assert!(line.is_some_and(|line| line.len() > beginning.len()), "{texts}");
    }
}

#[test]
fn what_is_most_like_the_first_line_comes_first() {
    let program = env!("CARGO_BIN_EXE_embeddings");
    let ranked = printed(program, EMBEDS, "the licence\nquite another thing\nthe licence\n");
    let lines: Vec<&str> = ranked.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, "1.000 the licence"), "{ranked}");
}

#[test]
fn a_missing_model_is_told() {
    for program in [env!("CARGO_BIN_EXE_tools"), env!("CARGO_BIN_EXE_chat")] {
        let output = Command::new(program).arg("no/such/model").output().unwrap();
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains("no such folder"));
    }
}
