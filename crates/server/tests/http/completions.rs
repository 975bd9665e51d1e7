//! `POST /v1/completions` and `/v1/embeddings`.

use serde_json::{Value as Json, json};

use crate::{TestServer, merge};

fn completion(server: &TestServer, more: Json) -> crate::Answer {
    let mut body = json!({"prompt": "Once"});
    merge(&mut body, more);
    server.post("/v1/completions", &body)
}

fn texts(answer: &crate::Answer) -> Vec<String> {
    let json = answer.json();
    let choices = json["choices"].as_array().unwrap_or_else(|| panic!("{}", answer.text));
    choices.iter().map(|choice| choice["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_form_of_prompt_is_continued() {
    let server = TestServer::start();
    for (prompt, count) in [
        (json!("Once"), 1),
        (json!(["Once", "Twice"]), 2),
        (json!([79, 110]), 1),
        (json!([[79], [110], [99]]), 3),
    ] {
        let answer = completion(&server, json!({"prompt": prompt}));
        assert_eq!(texts(&answer), vec!["The fox ran."; count]);
        assert_eq!(answer.json()["object"], "text_completion");
    }
    assert_eq!(server.model.options.lock().unwrap()[0].max_tokens, Some(16), "OpenAI's default");
}

#[test]
fn echo_begins_with_the_prompt_also_without_new_tokens() {
    let server = TestServer::start();
    let answer = completion(&server, json!({"echo": true, "max_tokens": 0}));
    assert_eq!(texts(&answer), ["Once"]);
    assert_eq!(answer.json()["choices"][0]["finish_reason"], "length");
    let answer = completion(&server, json!({"echo": true, "prompt": [79, 110]}));
    assert_eq!(texts(&answer), ["OnThe fox ran."]);
    let answer = completion(&server, json!({"echo": true, "logprobs": 1}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "echo"));
}

#[test]
fn log_probabilities_are_lists() {
    let server = TestServer::start();
    let json = completion(&server, json!({"logprobs": 2})).json();
    let logprobs = &json["choices"][0]["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["The", " fox", " ran", "."]));
    assert_eq!(logprobs["token_logprobs"], json!([-0.25, -0.25, -0.25, -0.25]));
    assert_eq!(logprobs["top_logprobs"][0], json!({"The": -0.25, " fox": -1.25}));
    assert_eq!(logprobs["text_offset"], json!([0, 3, 7, 11]));
    let none = completion(&server, json!({"logprobs": 0})).json();
    assert_eq!(none["choices"][0]["logprobs"]["top_logprobs"], json!([{}, {}, {}, {}]));
}

#[test]
fn the_best_are_the_likeliest() {
    let server = TestServer::start();
    let more = json!({"prompt": ["a", "b"], "n": 2, "best_of": 3, "seed": 0});
    let json = completion(&server, more).json();
    assert_eq!(json["choices"].as_array().unwrap().len(), 4);
    assert_eq!(json["choices"][3]["index"], 3);
    // Three answers to each of two prompts of one token.
    assert_eq!(json["usage"]["completion_tokens"], 24);
    assert_eq!(json["usage"]["prompt_tokens"], 2);
    assert_eq!(json["choices"][0]["logprobs"], Json::Null, "not asked for");
    for (more, param) in [
        (json!({"n": 3, "best_of": 2}), "best_of"),
        (json!({"best_of": 2, "stream": true}), "best_of"),
        (json!({"suffix": "end"}), "suffix"),
    ] {
        let answer = completion(&server, more);
        assert_eq!((answer.status, answer.error("param").as_str()), (400, param));
    }
}

#[test]
fn a_stream_says_what_the_whole_answer_says() {
    let server = TestServer::start();
    let more = json!({"prompt": ["Once", "Twice"], "echo": true, "n": 2});
    let whole = completion(&server, more.clone());
    let mut more = more;
    merge(&mut more, json!({"stream": true, "stream_options": {"include_usage": true}}));
    let mut chunks = completion(&server, more).chunks();
    assert_eq!(chunks.pop().unwrap()["usage"], whole.json()["usage"]);
    let mut streamed = vec![String::new(); 4];
    for chunk in chunks {
        let choice = &chunk["choices"][0];
        streamed[choice["index"].as_u64().unwrap() as usize]
            .push_str(choice["text"].as_str().unwrap());
    }
    assert_eq!(streamed, texts(&whole));
}

#[test]
fn log_probabilities_are_the_same_in_a_stream() {
    let server = TestServer::start();
    let whole = completion(&server, json!({"logprobs": 1})).json();
    let chunks = completion(&server, json!({"logprobs": 1, "stream": true})).chunks();
    for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        let parts = chunks.iter().filter_map(|c| c["choices"][0]["logprobs"][list].as_array());
        let joined: Vec<_> = parts.flatten().cloned().collect();
        assert_eq!(json!(joined), whole["choices"][0]["logprobs"][list], "{list}");
    }
}

#[test]
fn embeddings_are_refused_by_name() {
    let server = TestServer::start();
    let answer = server.post("/v1/embeddings", &json!({"model": "fake", "input": "a"}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "model"));
    assert!(answer.error("message").contains("embed"));
}
