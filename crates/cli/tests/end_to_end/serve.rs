//! The server as a process: its address, an answer, signals.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
#[cfg(target_os = "linux")]
use std::process::Stdio;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::{FOX, PATIENCE, command, copy_parts, finish, interrupt, ml, signal, text};

/// A server on a free port, and its address.
pub fn serve(arguments: &[&str]) -> (Child, String) {
    serve_by(command(&[]), &[&["--quiet"], arguments].concat())
}

/// A server as [`serve`] starts it, by `command`, which has no arguments yet.
pub fn serve_by(mut command: Command, arguments: &[&str]) -> (Child, String) {
    let all: Vec<_> = ["serve", "--port", "0", "--log", "off"].iter().chain(arguments).collect();
    let mut child = command.args(all).spawn().unwrap();
    let mut line = String::new();
    // Read by the byte, so that what comes later is left for `finish`.
    let stderr = child.stderr.as_mut().unwrap();
    BufReader::with_capacity(1, stderr).read_line(&mut line).unwrap();
    let address = line.trim().split_once("://").unwrap_or_else(|| panic!("{line}")).1;
    (child, address.to_owned())
}

pub fn send(address: &str, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// The JSON that `path` answers.
pub fn answered(address: &str, path: &str, body: &Value) -> Value {
    let answer = request(address, "POST", path, &body.to_string());
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
}

pub fn request(address: &str, method: &str, path: &str, body: &str) -> String {
    let mut answer = String::new();
    send(address, method, path, body).read_to_string(&mut answer).unwrap();
    answer
}

pub fn wait_until_ready(address: &str) {
    let start = Instant::now();
    while !request(address, "GET", "/health", "").contains("\"status\":\"ok\"") {
        assert!(start.elapsed() < PATIENCE, "the model is not loaded");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A chat that goes on until something ends it.
fn endless() -> String {
    format!(
        "{{\"messages\": [{{\"role\": \"user\", \"content\": \"{FOX}\"}}], \"stream\": true, \
         \"ignore_eos\": true}}"
    )
}

#[test]
fn the_server_answers_and_ends_by_a_signal() {
    let (child, address) = serve(&[]);
    wait_until_ready(&address);
    let body = format!(
        "{{\"messages\": [{{\"role\": \"user\", \"content\": \"{FOX}\"}}], \
                        \"max_tokens\": 8, \"temperature\": 0}}"
    );
    let answer = request(&address, "POST", "/v1/chat/completions", &body);
    assert!(answer.contains("\"completion_tokens\":8"), "{answer}");
    interrupt(&child);
    let (code, out, error) = finish(child);
    assert_eq!((code, out.as_str(), error.as_str()), (Some(0), "", ""));
}

#[test]
fn the_port_is_open_before_the_vocabulary_is_read() {
    let folder = tempfile::tempdir().unwrap();
    copy_parts(["models/qwen3", "tokenizers/qwen"], folder.path());
    // What is wrong with it is told behind the open port.
    fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
    let (child, address) = serve(&["--model", folder.path().to_str().unwrap()]);
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let (code, _, error) = finish(child);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("tokenizer.json"), "{error}");
}

#[test]
fn the_port_is_open_before_the_vocabulary_of_a_file_of_gguf_is_read() {
    let fixture =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../metal-backend/tests/fixtures/gguf/qwen3.gguf");
    let mut bytes = fs::read(fixture).unwrap();
    let model = b"\x04\0\0\0\0\0\0\0gpt2";
    let at = bytes.windows(model.len()).position(|found| found == model).unwrap();
    bytes[at + model.len() - 4..][..4].copy_from_slice(b"gpt3");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("odd.gguf");
    fs::write(&file, bytes).unwrap();
    let (child, address) = serve(&["--model", file.to_str().unwrap()]);
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let (code, _, error) = finish(child);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("odd.gguf: `tokenizer.ggml.model` is `gpt3`"), "{error}");
}

/// The one choice of the answer to a completion.
fn completion(address: &str, body: &Value) -> Value {
    let answer = request(address, "POST", "/v1/completions", &body.to_string());
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
    body["choices"][0].take()
}

/// A list of an answer's log probabilities.
fn list(choice: &Value, name: &str) -> Vec<Value> {
    choice["logprobs"][name].as_array().unwrap_or_else(|| panic!("{choice}")).clone()
}

#[test]
fn an_answer_that_is_a_prompt_again_is_as_likely_as_it_was() {
    let (child, address) = serve(&[]);
    wait_until_ready(&address);
    let prompt = format!("<|im_start|>user\n{FOX}<|im_end|>\n<|im_start|>assistant\n");
    let body = json!({"prompt": prompt, "max_tokens": 300, "temperature": 0, "logprobs": 1});
    let said = completion(&address, &body);
    assert_eq!(said["finish_reason"], "stop", "the model ends by itself");
    let count = list(&said, "tokens").len();
    let text = format!("{prompt}{}", said["text"].as_str().unwrap());
    for (max_tokens, more) in [(0, 0), (1, 1)] {
        let body = json!({"prompt": text, "max_tokens": max_tokens, "temperature": 0, "echo": true,
            "logprobs": 1});
        let told = completion(&address, &body);
        let (tokens, logprobs) = (list(&told, "tokens"), list(&told, "token_logprobs"));
        let (top, offsets) = (list(&told, "top_logprobs"), list(&told, "text_offset"));
        assert!(logprobs[0].is_null() && top[0].is_null());
        assert_eq!([logprobs.len(), top.len(), offsets.len()], [tokens.len(); 3]);
        // Also where the one token that follows is the end.
        let end = tokens.len() - more;
        let answer = end - count..end;
        assert_eq!(tokens[answer.clone()], list(&said, "tokens"));
        let decoded = list(&said, "token_logprobs");
        for (at, decoded) in answer.zip(decoded) {
            let (told, decoded) = (logprobs[at].as_f64().unwrap(), decoded.as_f64().unwrap());
            // bf16, in chunks and in steps.
            assert!((told - decoded).abs() < 0.25, "{at}: {told} {decoded}");
        }
        if more == 1 {
            assert_eq!(tokens.last(), Some(&json!("<|im_end|>")), "a special token has its name");
        }
        // Names are no part of the text.
        let text: String = tokens.iter().filter_map(Value::as_str).collect();
        let text = text.replace("<|im_start|>", "").replace("<|im_end|>", "");
        assert_eq!(told["text"], text);
    }
    interrupt(&child);
    assert_eq!(finish(child).0, Some(0));
}

#[test]
fn the_bytes_of_an_answers_tokens_are_those_of_its_text() {
    let (child, address) = serve(&[]);
    wait_until_ready(&address);
    let told = answered(&address, "/tokenize", &json!({"content": "🦊é"}));
    let ids = told["tokens"].as_array().unwrap().iter().map(Value::to_string);
    let only: Map<String, Value> = ids.map(|id| (id, json!(100))).collect();
    let mut parts = 0;
    for seed in 0..4 {
        let body = json!({
            "messages": [{"role": "user", "content": FOX}], "max_tokens": 64, "temperature": 2,
            "seed": seed, "logprobs": true, "top_logprobs": 2, "logit_bias": only,
        });
        let answer = answered(&address, "/v1/chat/completions", &body);
        let choice = &answer["choices"][0];
        let entries = list(choice, "content");
        let bytes = entries.iter().flat_map(|entry| entry["bytes"].as_array().unwrap());
        let bytes: Vec<u8> = bytes.map(|byte| byte.as_u64().unwrap() as u8).collect();
        let content = choice["message"]["content"].as_str().unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), content);
        let is_part = |entry: &&Value| entry["token"].as_str().unwrap().contains(r"\x");
        parts += entries.iter().filter(is_part).count();
    }
    assert!(parts > 0, "no token was a part of a character");
    interrupt(&child);
    assert_eq!(finish(child).0, Some(0));
}

#[test]
fn sigterm_and_a_terminal_that_closes_end_a_stream_with_its_last_chunk() {
    // Under `nohup`, the server would stay as well.
    let hangs_up = cfg!(target_os = "linux") && !inference_server::hangup_is_ignored();
    let ends = if hangs_up { &["-TERM", "-HUP"][..] } else { &["-TERM"] };
    for end in ends {
        let (child, address) = serve(&["--drain-timeout", "1"]);
        wait_until_ready(&address);
        let mut stream = send(&address, "POST", "/v1/chat/completions", &endless());
        let mut first = [0; 512];
        assert!(stream.read(&mut first).unwrap() > 0);
        signal(&child, end);
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        let is_whole = rest.contains("\"finish_reason\":\"length\"") && rest.contains("[DONE]");
        assert!(is_whole, "{end}: {rest}");
        assert_eq!(finish(child).0, Some(0), "{end}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn what_ignores_hangups_stays() {
    let told = command(&[]);
    // As `nohup` does, which would also send what it prints elsewhere.
    let mut nohup = Command::new("sh");
    nohup.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(told.get_program());
    nohup.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    nohup.envs(told.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (child, address) = serve_by(nohup, &[]);
    wait_until_ready(&address);
    signal(&child, "-HUP");
    thread::sleep(Duration::from_millis(300));
    wait_until_ready(&address);
    interrupt(&child);
    assert_eq!(finish(child).0, Some(0));
}

#[test]
fn a_second_signal_ends_at_once() {
    let (child, address) = serve(&["--drain-timeout", "60"]);
    wait_until_ready(&address);
    // Held open without a request's end, so that draining would wait for it.
    let mut held = TcpStream::connect(&address).unwrap();
    let head = "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 10\r\n\r\n{";
    held.write_all(head.as_bytes()).unwrap();
    thread::sleep(Duration::from_millis(300));
    signal(&child, "-TERM");
    thread::sleep(Duration::from_millis(300));
    let start = Instant::now();
    signal(&child, "-TERM");
    let (code, _, error) = finish(child);
    assert_eq!(code, Some(1), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn what_must_not_start_does_not() {
    let open = ml(&["serve", "--host", "0.0.0.0", "--port", "0"]);
    assert_eq!(open.status.code(), Some(2));
    assert!(text(&open.stderr).contains("API key"));
    let missing = ml(&["serve", "--port", "0", "--model", "no/such/model"]);
    assert_eq!(missing.status.code(), Some(1), "{}", text(&missing.stderr));
    assert!(text(&missing.stderr).contains("no/such/model"));
}
