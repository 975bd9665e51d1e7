//! Texts from files and stdin: byte order marks, other encodings, inputs without an end, and lines
//! of a batch.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use crate::{FOX, command, finish, generated, json, ml, ml_with_stdin, text};

struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The path of a new file.
    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }
}

/// `text` in the encoding that editors of another system write, with its mark.
fn utf16(text: &str) -> Vec<u8> {
    format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect()
}

const MARK: &str = "\u{feff}";

#[test]
fn a_byte_order_mark_changes_no_prompt_and_no_label() {
    let folder = Folder::new();
    let ids = |arguments: &[&str]| {
        let all = [&["generate", "--json", "-q", "-n", "1", "-t", "0"], arguments].concat();
        json(&all)["prompt_token_ids"].clone()
    };
    let expected = ids(&[FOX]);
    let prompt = folder.file("prompt.txt", format!("{MARK}{FOX}\n"));
    assert_eq!(ids(&["--prompt-file", &prompt]), expected);
    let messages = format!(r#"{MARK}[{{"role": "user", "content": "{FOX}"}}]"#);
    assert_eq!(ids(&["--messages", &folder.file("chat.json", messages)]), expected);
    let batch = folder.file("batch.jsonl", format!("{MARK}\"{FOX}\"\n"));
    assert_eq!(ids(&["--batch", &batch]), expected);
    let arguments = ["generate", "--json", "-q", "-n", "1", "-t", "0"];
    let piped = ml_with_stdin(&arguments, format!("{MARK}{FOX}\n").as_bytes());
    let piped: Value = serde_json::from_slice(&piped.stdout).unwrap();
    assert_eq!(piped["prompt_token_ids"], expected);

    let labels = |name: &str, mark: &str| {
        let labels = folder.file(name, format!("{mark}positive\r\nnegative\n"));
        let prompts = folder.file("prompts.txt", format!("{mark}Money well spent.\n"));
        json(&["classify", "--json", "-q", "--labels-file", &labels, "--file", &prompts])
    };
    assert_eq!(labels("marked.txt", MARK), labels("plain.txt", ""));
}

#[test]
fn a_piped_chat_begins_without_the_byte_order_mark() {
    let folder = Folder::new();
    let saved = folder.path("chat.json");
    let turns = format!("{MARK}{FOX}\n/save {}\n", saved.display());
    let output = ml_with_stdin(&["chat", "-q", "-n", "2"], turns.as_bytes());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let saved: Value = serde_json::from_str(&fs::read_to_string(saved).unwrap()).unwrap();
    assert_eq!(saved[0]["content"], FOX);
}

#[test]
fn a_file_in_utf16_is_refused_by_that_name() {
    let folder = Folder::new();
    let file = folder.file("utf16.txt", utf16("positive\nnegative\n"));
    for arguments in [
        &["classify", "--labels-file", &file, "x"][..],
        &["classify", "--file", &file],
        &["embed", "--file", &file],
        &["rerank", "x", "--file", &file],
        &["generate", "--prompt-file", &file],
        &["generate", "--messages", &file],
        &["generate", "--json", "--batch", &file],
        &["generate", "--tools", &file, "x"],
        &["generate", "--json-schema", &file, "x"],
        &["generate", "--grammar", &file, "x"],
        &["serve", "--api-key-file", &file],
        &["launch", "--hostfile", &file, "--", "version"],
    ] {
        let output = ml(arguments);
        let told = text(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(told.contains("utf16.txt: is UTF-16, not UTF-8; convert"), "{arguments:?}: {told}");
    }
    for arguments in [&["generate"][..], &["chat", "-q"], &["classify"]] {
        let output = ml_with_stdin(arguments, &utf16("x\n"));
        let told = text(&output.stderr);
        assert!(told.contains("stdin: is UTF-16"), "{arguments:?}: {told}");
    }
}

#[test]
fn an_input_without_an_end_is_refused() {
    let zero = "/dev/zero";
    for arguments in [
        &["classify", "--labels-file", zero, "x"][..],
        &["classify", "--file", zero],
        &["embed", "--file", zero],
        &["generate", "--prompt-file", zero],
        &["generate", "--messages", zero],
        &["generate", "--json", "--batch", zero],
        &["generate", "--tools", zero, "x"],
        &["generate", "--json-schema", zero, "x"],
        &["generate", "--grammar", zero, "x"],
        &["generate", "--image", zero, "x"],
        &["bench", "--url", "http://127.0.0.1:9", "--requests-file", zero],
        &["serve", "--api-key-file", zero],
        &["launch", "--hostfile", zero, "--", "version"],
    ] {
        let output = ml(arguments);
        let told = text(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(
            told.contains("/dev/zero") && told.contains("over 64 MiB"),
            "{arguments:?}: {told}"
        );
    }
    let mut ranks = command(&["generate", "x"]);
    ranks.env("MLX_RANK", "0").env("MLX_HOSTFILE", zero);
    let (code, _, told) = finish(ranks.spawn().unwrap());
    assert!(code == Some(1) && told.contains("over 64 MiB"), "{told}");
}

#[test]
fn a_line_of_a_batch_that_is_none_is_its_own_error() {
    let folder = Folder::new();
    let lines =
        format!("\"{FOX}\"\n\"\"\nnot JSON\n\n{{\"prompt\": \"a\", \"n\": 1}}\n\"{FOX}\"\n");
    let batch = folder.file("batch.jsonl", lines);
    let output = ml(&["generate", "--json", "-n", "2", "-t", "0", "--batch", &batch]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let lines: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 5);
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(line["index"], at);
        assert_eq!(line.get("text").is_some(), at == 0 || at == 4, "{line}");
    }
    assert_eq!(lines[0]["text"], lines[4]["text"]);
    for (at, wrong) in
        [(1, "line 2: the prompt is empty"), (2, "line 3: not JSON"), (3, "line 5: expected one")]
    {
        assert!(lines[at]["error"].as_str().unwrap().contains(wrong), "{}", lines[at]);
    }
    let told = text(&output.stderr);
    assert!(told.contains("3 of 5 prompts failed") && told.contains("| total "), "{told}");
}

#[test]
fn a_batch_without_prompts_is_refused_and_one_from_a_pipe_is_read() {
    let folder = Folder::new();
    let empty = folder.file("empty.jsonl", "\n\n");
    let output = ml(&["generate", "--json", "--batch", &empty]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("empty.jsonl: there are no prompts"));
    let arguments = ["generate", "--json", "-q", "-n", "1", "-t", "0", "--batch", "-"];
    let many = format!("\"{FOX}\"\n").repeat(130);
    let output = ml_with_stdin(&arguments, many.as_bytes());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 130);
    let last: Value = serde_json::from_str(text(&output.stdout).lines().last().unwrap()).unwrap();
    assert_eq!(last["index"], 129);
    assert!(!generated(&["generate", "-q", "-n", "1", FOX]).is_empty());
}
