//! Models with recurrent states behind the server: many requests at once, and conversations.

use std::io::Read;
use std::process::Child;
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::serve::{request, send, serve, wait_until_ready};
use crate::{copy_parts, finish, interrupt};

/// Gated delta nets, and Mamba 2 with experts, beside attention.
const HYBRIDS: [[&str; 2]; 2] = [
    ["tokenizers/qwen", "models/qwen3_5"],
    ["tokenizers/llama-converted", "models/nemotron_h-4bit-g32"],
];

/// Positions between snapshots of states.
const BLOCK: u64 = 64;

/// A server with one of the hybrids, in f32.
struct Server {
    child: Child,
    address: String,
    _folder: TempDir,
}

impl Server {
    fn new(parts: [&str; 2], arguments: &[&str]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        copy_parts(parts, folder.path());
        let model = folder.path().to_str().unwrap();
        let all = [&["--model", model, "--dtype", "f32"], arguments].concat();
        let (child, address) = serve(&all);
        wait_until_ready(&address);
        Server { child, address, _folder: folder }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let answer = request(&self.address, "POST", path, &body.to_string());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        serde_json::from_str(body).unwrap()
    }

    fn end(self) {
        interrupt(&self.child);
        assert_eq!(finish(self.child).0, Some(0));
    }
}

/// A request, and the pieces of its answer that are read where the client leaves then.
struct Asked {
    path: &'static str,
    body: Value,
    leaves_after: Option<usize>,
}

/// One of 32 requests of all kinds.
fn asked(number: usize) -> Asked {
    let own = |length: usize| (0..length).map(move |at| 20 + (at * at + 31 * number + at) % 700);
    let shared = (0..330).map(|at| 30 + (at * 17 + at / 9) % 600);
    let ids = |ids: Vec<usize>| json!({"prompt": ids, "ignore_eos": true, "logprobs": 0});
    let seed = 1000 + number;
    let (mut body, more) = match number % 8 {
        0 => (ids(own(9).collect()), json!({"max_tokens": 40, "temperature": 0})),
        1 => (ids(own(60).collect()), json!({"max_tokens": 60, "temperature": 0.9, "seed": seed})),
        2 => (
            ids(shared.chain(own(25)).collect()),
            json!({"max_tokens": 50, "temperature": 1.1, "top_p": 0.9, "seed": seed}),
        ),
        3 => (ids(own(600).collect()), json!({"max_tokens": 12, "temperature": 0})),
        4 => (ids(own(12).collect()), json!({"max_tokens": 100, "temperature": 0.8, "seed": seed})),
        5 => (
            ids(shared.chain(own(3)).collect()),
            json!({"max_tokens": 45, "temperature": 1, "frequency_penalty": 0.7, "seed": seed}),
        ),
        _ => {
            let text = format!("Tell me of the number {number}.");
            let messages = json!([{"role": "user", "content": text}]);
            let schema = json!({"type": "object", "additionalProperties": false,
                "properties": {"kind": {"enum": ["even", "odd"]}, "is_prime": {"type": "boolean"}},
                "required": ["kind", "is_prime"]});
            let format = json!({"type": "json_schema",
                "json_schema": {"name": "told", "strict": true, "schema": schema}});
            let drawn = json!({"max_tokens": 80, "temperature": 1, "seed": seed});
            let mut body = json!({"messages": messages, "reasoning_effort": "none"});
            // Half of them are held to a schema.
            if number % 8 == 6 {
                body["response_format"] = format;
            }
            (body, drawn)
        }
    };
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let is_chat = body.get("messages").is_some();
    let path = if is_chat { "/v1/chat/completions" } else { "/v1/completions" };
    Asked { path, body, leaves_after: (number % 8 == 4).then_some(3 + number) }
}

/// The answer's text and why it ended; of one that the client leaves, what came until then.
fn answer(server: &Server, asked: &Asked) -> (String, Value) {
    let Asked { path, body, leaves_after: Some(pieces) } = asked else {
        let choice = server.post(asked.path, &asked.body)["choices"][0].take();
        let text = choice.get("text").unwrap_or(&choice["message"]["content"]);
        return (text.as_str().unwrap().to_owned(), choice["finish_reason"].clone());
    };
    let mut body = body.clone();
    body["stream"] = json!(true);
    let mut stream = send(&server.address, "POST", path, &body.to_string());
    let mut seen = Vec::new();
    let mut buffer = [0; 2048];
    let count = |seen: &[u8]| seen.windows(6).filter(|window| window == b"data: ").count();
    while count(&seen) <= *pieces {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            read => seen.extend_from_slice(&buffer[..read]),
        }
    }
    drop(stream);
    let seen = String::from_utf8_lossy(&seen);
    let events = seen.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = events.filter_map(|event| serde_json::from_str::<Value>(event).ok());
    let texts = events.filter_map(|event| Some(event["choices"][0]["text"].as_str()?.to_owned()));
    (texts.take(*pieces).collect(), json!("left"))
}

#[test]
fn thirty_two_requests_of_all_kinds_are_each_answered_as_alone() {
    for parts in HYBRIDS {
        let server = Server::new(parts, &["--prefix-cache", "0", "--parallel", "1"]);
        let alone: Vec<_> = (0..32)
            .map(|number| {
                let all = Asked { leaves_after: None, ..asked(number) };
                answer(&server, &all)
            })
            .collect();
        server.end();
        let server = Server::new(parts, &["--prefix-cache", "4MiB", "--parallel", "6"]);
        // What is there already, and what is not.
        for round in 0..2 {
            let together: Vec<_> = thread::scope(|scope| {
                let started: Vec<_> = (0..32)
                    .map(|number| {
                        scope.spawn({
                            let server = &server;
                            move || answer(server, &asked(number))
                        })
                    })
                    .collect();
                started.into_iter().map(|one| one.join().unwrap()).collect()
            });
            for (number, (found, expected)) in together.iter().zip(&alone).enumerate() {
                if found.1 == "left" {
                    assert!(!found.0.is_empty(), "{parts:?} {number}");
                    assert!(
                        expected.0.starts_with(&found.0),
                        "{parts:?} {number} in round {round}"
                    );
                } else {
                    assert_eq!(found, expected, "{parts:?} {number} in round {round}");
                }
            }
        }
        for (number, (text, _)) in alone.iter().enumerate().filter(|(at, _)| at % 8 == 6) {
            let told: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"));
            assert!(told["is_prime"].is_boolean(), "{number}: {told}");
        }
        server.end();
    }
}

#[test]
fn a_second_turn_computes_what_is_new() {
    for parts in HYBRIDS {
        let with = Server::new(parts, &["--prefix-cache", "64MiB"]);
        let without = Server::new(parts, &["--prefix-cache", "0"]);
        let words: Vec<String> =
            (0..).take(1200).map(|at| format!("word {}", at * 7 % 93)).collect();
        let mut messages = vec![json!({"role": "user", "content": words.join(", ")})];
        let turn = |server: &Server, messages: &[Value]| {
            let body = json!({"messages": messages, "max_tokens": 24, "temperature": 0,
                "ignore_eos": true});
            let mut told = server.post("/v1/chat/completions", &body);
            let prompt = told["usage"]["prompt_tokens"].as_u64().unwrap();
            let cached = &told["usage"]["prompt_tokens_details"]["cached_tokens"];
            let cached = cached.as_u64().unwrap();
            (told["choices"][0]["message"].take(), prompt, cached)
        };
        let (said, first, cached) = turn(&with, &messages);
        assert!(first > 4000 && cached == 0, "{parts:?}: {first} ids, {cached} kept");
        messages.push(json!({"role": "assistant", "content": said["content"]}));
        messages.push(json!({"role": "user", "content": "And then?"}));
        let (said, second, cached) = turn(&with, &messages);
        assert!(second > first, "{parts:?}: {second} ids after {first}");
        assert!(first - cached.min(first) <= BLOCK, "{parts:?}: {cached} kept of {first}");
        assert_eq!(said, turn(&without, &messages).0, "{parts:?}");
        with.end();
        without.end();
    }
}
