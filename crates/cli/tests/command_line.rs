//! The binary where no model has to run: help, versions, usage errors, refusals.

// A helper of a test may panic as the test itself may.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::{Command, Output, Stdio};

fn ml(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ml"))
        .args(arguments)
        .env_remove("ML_MODEL")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Asserts that `ml` refuses `arguments` as bad usage, with these words and nothing on stdout.
fn refused(arguments: &[&str], words: &[&str]) {
    let output = ml(arguments);
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(error.starts_with("error: "), "{arguments:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{arguments:?}: {word:?} is not in: {error}");
    }
    assert_eq!(stdout(&output), "", "{arguments:?}");
}

#[test]
fn help_lists_the_commands_and_every_command_has_examples() {
    let help = ml(&["--help"]);
    assert!(help.status.success());
    for command in [
        "generate",
        "chat",
        "classify",
        "launch",
        "pull",
        "rm",
        "info",
        "list",
        "models",
        "doctor",
        "report",
        "completions",
    ] {
        assert!(stdout(&help).contains(&format!("\n  {command} ")), "{command}");
        let help = ml(&[command, "--help"]);
        assert!(help.status.success());
        assert!(stdout(&help).contains("Examples:\n  "), "{command}");
    }
}

#[test]
fn nothing_asked_shows_the_help_as_a_usage_error() {
    let output = ml(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("Usage: ml"));
}

#[test]
fn the_version_names_the_crate() {
    for flag in ["--version", "-V"] {
        let output = ml(&[flag]);
        assert!(output.status.success());
        let text = stdout(&output);
        assert!(text.starts_with(&format!("ml {}\n", env!("CARGO_PKG_VERSION"))), "{text}");
        assert!(
            text.contains("mlx-c") && text.contains("MLX") && text.contains("device"),
            "{text}"
        );
    }
}

#[test]
fn bad_values_are_refused_with_flag_and_range() {
    refused(&["generate", "hi", "--temperature", "-1"], &["--temperature", "at least 0"]);
    refused(&["generate", "hi", "--temperature", "NaN"], &["--temperature", "NaN"]);
    refused(&["generate", "hi", "--temperature", "warm"], &["--temperature", "expected a number"]);
    refused(&["generate", "hi", "--top-p", "1.5"], &["--top-p", "at most 1"]);
    refused(&["generate", "hi", "--top-k", "-3"], &["--top-k", "whole number"]);
    refused(&["generate", "hi", "-n", "99999999999999999999"], &["--max-tokens", "whole number"]);
    refused(&["generate", "hi", "--context-length", "0"], &["--context-length", "at least 1"]);
    refused(&["generate", "hi", "--memory-limit", "99999999999TiB"], &["--memory-limit"]);
    refused(&["generate", "hi", "--timeout", "1e300"], &["--timeout", "at most"]);
    refused(&["chat", "--min-p", "2"], &["--min-p", "at most 1"]);
    refused(&["generate", "hi", "--threads", "20000"], &["--threads", "above 1024"]);
}

#[test]
fn who_drafts_is_refused_by_name_where_it_cannot_be() {
    refused(&["generate", "hi", "--speculate", "draft"], &["--speculate", "--draft-model"]);
    refused(&["generate", "hi", "--speculate", "someone"], &["auto, mtp, draft, ngram, off"]);
}

#[test]
fn unknown_commands_and_options_are_refused() {
    refused(&["frobnicate"], &["frobnicate"]);
    refused(&["generate", "hi", "--frobnicate"], &["--frobnicate"]);
    refused(&["pull"], &["<MODEL>"]);
    refused(&["generate", "hi", "--model", ""], &["--model"]);
}

#[test]
fn empty_prompts_are_refused() {
    refused(&["generate", ""], &["the prompt is empty"]);
    refused(&["generate"], &["the prompt is empty"]);
    refused(&["generate", "--raw", ""], &["the prompt is empty"]);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let latin1 = folder.path().join("latin1.txt");
    fs::write(&latin1, b"caf\xe9").unwrap();
    let path = latin1.to_str().unwrap();
    for (arguments, words) in [
        (["generate", "--prompt-file", "no/such.txt"], "no/such.txt: no such file"),
        (["generate", "--prompt-file", path], "latin1.txt: not valid UTF-8 at byte 3"),
        (["generate", "--messages", path], "latin1.txt: not valid UTF-8 at byte 3"),
        (["generate", "--prompt-file", "."], ".: is a directory"),
    ] {
        let output = ml(&arguments);
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.starts_with("error: ") && error.contains(words), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn messages_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.json");
    for (text, words) in [
        ("{", "chat.json: not JSON"),
        ("{}", "chat.json: expected a JSON array of messages"),
        (r#"[{"content": "x"}]"#, "chat.json: message 0: `role` is missing"),
        (r#"[{"role": "user", "content": 3}]"#, "chat.json: message 0: `content`"),
    ] {
        fs::write(&path, text).unwrap();
        let output = ml(&["generate", "--messages", path.to_str().unwrap()]);
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn an_empty_folder_lists_no_models() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let output = ml(&["list", path]);
    assert!(output.status.success());
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).starts_with("no models in "));
    let output = ml(&["list", path, "--json"]);
    assert_eq!(stdout(&output), "[]\n");
}

#[test]
fn a_folder_that_cannot_be_listed_is_named() {
    let output = ml(&["list", "no/such/folder"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("error: no/such/folder: "));
}

#[test]
fn a_broken_model_is_listed_with_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("broken");
    fs::create_dir(&model).unwrap();
    fs::write(model.join("config.json"), "{").unwrap();
    fs::write(model.join("model.safetensors"), "").unwrap();
    let path = folder.path().to_str().unwrap();
    let output = ml(&["list", path]);
    assert!(output.status.success());
    assert!(stdout(&output).contains("broken") && stdout(&output).contains("  error: "));
    let output = ml(&["list", path, "--json"]);
    let models: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(models[0]["error"].as_str().is_some_and(|error| error.contains("config.json")));
}

#[test]
fn completions_are_printed_for_a_shell() {
    let output = ml(&["completions", "bash"]);
    assert!(output.status.success());
    assert!(stdout(&output).contains("--prompt-file"));
    refused(&["completions", "cobol"], &["cobol"]);
}

#[test]
fn a_closed_stdout_is_no_error() {
    for arguments in [["completions", "zsh"].as_slice(), &["--version"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_ml"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .and_then(|child| child.wait_with_output())
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{arguments:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn help_that_cannot_be_written_is_an_error_unless_its_reader_left() {
    for arguments in [&["--help"][..], &["generate", "--help"], &["--version"]] {
        let start = |stdout: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_ml"));
            command.args(arguments).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = start(full.into()).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let error = stderr(&output);
        assert!(error.starts_with("error: ") && error.contains("no space left"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = start(writer.into()).wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    }
}

#[test]
fn an_agent_that_is_not_there_is_named_with_its_package() {
    let launch = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ml"));
        command.arg("launch").args(arguments).env("PATH", "/nowhere").stdin(Stdio::null());
        command.output().unwrap()
    };
    for (agent, package) in [
        ("claude", "@anthropic-ai/claude-code"),
        ("codex", "@openai/codex"),
        ("opencode", "opencode-ai"),
    ] {
        let output = launch(&[agent]);
        assert_eq!(output.status.code(), Some(1));
        let said = stderr(&output);
        assert!(
            said.contains(agent) && said.contains(&format!("npm install -g {package}")),
            "{said}"
        );
    }
    refused(&["launch", "vim"], &["vim", "claude", "codex", "opencode"]);
    refused(
        &["launch", "codex", "--url", "http://localhost", "--model", "a"],
        &["--url", "--model"],
    );
}

#[test]
fn an_agent_is_started_with_its_arguments_and_told_of_the_server() {
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let agent = folder.path().join("claude");
    // It stands for the agent, and tells what it was started with.
    let script = "#!/bin/sh\necho \"$ANTHROPIC_BASE_URL $ANTHROPIC_MODEL $ANTHROPIC_AUTH_TOKEN\"\n\
                  echo \"${ANTHROPIC_API_KEY:-none} ${ML_LAUNCH_API_KEY:-none}\"\necho \"$@\"\nexit 7\n";
    fs::write(&agent, script).unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = vec![0; 4096];
        let count = stream.read(&mut asked).unwrap();
        let body = r#"{"data": [{"id": "fox", "max_model_len": 100000}]}"#;
        let length = body.len();
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        String::from_utf8_lossy(&asked[..count]).into_owned()
    });
    let url = format!("http://{address}");
    let output = Command::new(env!("CARGO_BIN_EXE_ml"))
        .args(["launch", "claude", "--url", &format!("{url}/v1/"), "--", "-p", "a b"])
        .env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()))
        .env("ANTHROPIC_API_KEY", "another")
        .env("ML_LAUNCH_API_KEY", "secret")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let asked = server.join().unwrap();
    assert!(asked.starts_with("GET /v1/models ") && asked.contains("Bearer secret"), "{asked}");
    assert_eq!(stdout(&output), format!("{url} fox secret\nnone none\n-p a b\n"));
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
}

#[test]
fn a_bad_picture_is_named_before_a_model_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.png");
    fs::write(&text, "no picture").unwrap();
    let text = text.to_str().unwrap();
    for (path, told) in [
        (text, "the picture is of an unknown format"),
        ("/nowhere/fox.png", "/nowhere/fox.png"),
        (folder.path().to_str().unwrap(), "folder"),
    ] {
        for command in ["generate", "classify", "inspect"] {
            let output = ml(&[command, "--image", path, "hi"]);
            let error = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{error}");
            assert!(error.contains(path) && error.contains(told), "{error}");
        }
    }
    refused(&["generate", "--image", text, "--messages", "chat.json"], &["--image", "--messages"]);
    refused(&["generate", "--image", text, "--batch", "-", "--json"], &["--image", "--batch"]);
}
