//! Answers of a server of ranks with constraints, biases, kept prefixes and packed caches: those of
//! one process.

use std::process::Child;
use std::thread;

use serde_json::{Value as Json, json};

use super::{ON_CPU, served_with};
use crate::serve::{request, serve, wait_until_ready};
use crate::{finish, interrupt};

/// Requests that are asked one after the other, and then all at once.
fn asked() -> Vec<Json> {
    let chat = |content: &str, more: Json| {
        let mut body = json!({"messages": [{"role": "user", "content": content}], "max_tokens": 60,
            "seed": 5, "temperature": 0, "top_p": 0.95});
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        body
    };
    let schema = json!({"type": "object", "additionalProperties": false, "required": ["city", "age"],
        "properties": {"city": {"type": "string", "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 130}}});
    let format = json!({"type": "json_schema",
        "json_schema": {"name": "told", "strict": true, "schema": schema}});
    let long = "Tell me a story about a fox and a bear. ".repeat(50);
    vec![
        chat("Mara is 31 and lives in Oslo.", json!({"response_format": format})),
        chat("Who is it?", json!({"response_format": format, "temperature": 1.0, "seed": 11})),
        chat(&long, json!({})),
        // Its beginning was computed.
        chat(&format!("{long} And of an owl."), json!({"temperature": 1.0})),
        chat("Tell me a story", json!({"frequency_penalty": 1.5, "presence_penalty": 0.5})),
        chat("Tell me a story", json!({"logit_bias": {"100": 5, "101": -100, "300": 4}})),
        chat("Tell me a story", json!({"repetition_penalty": 1.3, "temperature": 1.0})),
        chat("Tell me a story", json!({"logprobs": true, "top_logprobs": 5, "max_tokens": 12})),
        chat("Tell me a story", json!({"min_p": 0.05, "top_k": 40, "temperature": 0.9})),
    ]
}

/// Returns what must be equal of an answer: its text, why it ended, how much of the prompt was
/// kept. Probabilities may differ in their last digits.
fn told(address: &str, body: &Json) -> Json {
    let answer = request(address, "POST", "/v1/chat/completions", &body.to_string());
    let (_, answer) = answer.split_once("\r\n\r\n").unwrap();
    let answer: Json = serde_json::from_str(answer).unwrap_or_else(|_| panic!("{answer}"));
    let choice = &answer["choices"][0];
    let tops = choice["logprobs"]["content"].as_array().into_iter().flatten().map(|token| {
        let tops = token["top_logprobs"].as_array().unwrap().iter();
        let rounded = |top: &Json| (10.0 * top["logprob"].as_f64().unwrap()).round();
        (token["token"].clone(), tops.map(rounded).collect::<Vec<f64>>())
    });
    json!({
        "content": choice["message"]["content"], "finish_reason": choice["finish_reason"],
        "tops": tops.collect::<Vec<_>>(), "usage": answer["usage"],
    })
}

fn all_told(address: &str) -> Vec<Json> {
    wait_until_ready(address);
    let asked = asked();
    let mut answers: Vec<Json> = asked.iter().map(|body| told(address, body)).collect();
    thread::scope(|scope| {
        let begun: Vec<_> = asked.iter().map(|body| scope.spawn(|| told(address, body))).collect();
        answers.extend(begun.into_iter().map(|one| one.join().unwrap()));
    });
    answers
}

fn end(ranks: Vec<Child>) {
    interrupt(&ranks[0]);
    for (rank, (code, _, told)) in ranks.into_iter().map(finish).enumerate() {
        assert_eq!((code, told.as_str()), (Some(0), ""), "rank {rank}");
    }
}

#[test]
fn constraints_biases_and_kept_prefixes_of_ranks_are_those_of_one() {
    let none: &[&str] = &[];
    for (options, of_ranks, counts) in [
        (none, none, &[2, 3][..]),
        (&["--kv-bits", "8"], none, &[2]),
        (none, &["--pipeline"], &[2, 3]),
    ] {
        let (one, address) = serve(&[options, &["--dtype", "f32"], &ON_CPU].concat());
        let alone = all_told(&address);
        end(vec![one]);
        let object: Json = serde_json::from_str(alone[0]["content"].as_str().unwrap()).unwrap();
        assert!(object["age"].as_u64().is_some_and(|age| age <= 130), "{object}");
        let kept = &alone[3]["usage"]["prompt_tokens_details"]["cached_tokens"];
        assert!(kept.as_u64().is_some_and(|kept| kept >= 256), "{kept}");
        assert_eq!(alone[7]["tops"].as_array().map(Vec::len), Some(12));
        for &count in counts {
            let (_folder, ranks, address) = served_with(count, &[options, of_ranks].concat());
            for (number, (together, alone)) in all_told(&address).iter().zip(&alone).enumerate() {
                assert_eq!(
                    together, alone,
                    "request {number}, {count} ranks, {options:?} {of_ranks:?}"
                );
            }
            end(ranks);
        }
    }
}
