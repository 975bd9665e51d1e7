//! `POST /v1/completions` and `/v1/embeddings`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use inference_core::Feature;
use serde_json::{Value as Json, json};

use crate::client::Client;
use crate::{TestServer, merge};
use fake_model::{FakeModel as Fake, all_but};

fn completion(server: &TestServer, more: Json) -> crate::Answer {
    let mut body = json!({"prompt": "Once"});
    merge(&mut body, more);
    server.post("/v1/completions", &body)
}

fn merge_into(mut body: Json, more: Json) -> Json {
    merge(&mut body, more);
    body
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
}

#[test]
fn echoed_prompts_tell_how_likely_their_tokens_are() {
    let server = TestServer::start();
    for (prompt, text) in [(json!("añb"), "añb"), (json!([97, 241, 98]), "añb")] {
        let more = json!({"prompt": prompt, "echo": true, "logprobs": 2, "max_tokens": 0});
        let answer = completion(&server, more);
        assert_eq!(texts(&answer), [text]);
        let json = answer.json();
        let logprobs = &json["choices"][0]["logprobs"];
        assert_eq!(logprobs["tokens"], json!(["a", "ñ", "b"]));
        assert_eq!(logprobs["token_logprobs"], json!([null, -0.5, -1.0]));
        let top = json!([null, {"ñ": -0.5, "ò": -1.0}, {"b": -1.0, "c": -1.5}]);
        assert_eq!(logprobs["top_logprobs"], top);
        // Characters, not bytes.
        assert_eq!(logprobs["text_offset"], json!([0, 1, 2]));
        assert_eq!(json["choices"][0]["finish_reason"], "length");
        assert_eq!(
            (&json["usage"]["prompt_tokens"], &json["usage"]["completion_tokens"]),
            (&json!(3), &json!(0))
        );
    }
    let more = json!({"prompt": "añb", "echo": true, "logprobs": 0, "max_tokens": 2});
    let answer = completion(&server, more);
    assert_eq!(texts(&answer), ["añbThe fox"]);
    let json = answer.json();
    let logprobs = &json["choices"][0]["logprobs"];
    assert_eq!(logprobs["token_logprobs"], json!([null, -0.5, -1.0, -0.25, -0.25]));
    assert_eq!(logprobs["top_logprobs"], json!([null, {}, {}, {}, {}]));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 3, 6]));
}

#[test]
fn the_one_token_beside_a_prompt_is_told_also_where_it_is_the_end() {
    let server = TestServer::start();
    for (more, told) in [
        (json!({"echo": true, "logprobs": 1, "max_tokens": 1}), true),
        (json!({"echo": true, "logprobs": 1, "max_tokens": 2}), false),
        (json!({"echo": true, "logprobs": 1, "max_tokens": 1, "regex": "a"}), false),
        (json!({"echo": true, "max_tokens": 1}), false),
        (json!({"logprobs": 1, "max_tokens": 1}), false),
    ] {
        assert_eq!(completion(&server, more.clone()).status, 200);
        let options = server.model.options.lock().unwrap().pop().unwrap();
        assert_eq!(options.ignore_eos, told, "{more}");
    }
}

#[test]
fn each_prompt_of_a_batch_tells_of_itself() {
    let server = TestServer::start();
    let prompts = ["a", "bcd", &"e".repeat(200)];
    let more = json!({"prompt": prompts, "n": 2, "echo": true, "logprobs": 1, "max_tokens": 1});
    let answer = completion(&server, more);
    assert_eq!(texts(&answer).len(), 6);
    let json = answer.json();
    for (index, choice) in json["choices"].as_array().unwrap().iter().enumerate() {
        let prompt = prompts[index / 2];
        assert_eq!(choice["text"], format!("{prompt}The"));
        let list = choice["logprobs"]["token_logprobs"].as_array().unwrap();
        assert_eq!(list.len(), prompt.len() + 1);
        assert_eq!((&list[0], list.last()), (&Json::Null, Some(&json!(-0.25))));
        let expected: Vec<_> = (0..prompt.len()).collect();
        let offsets = &choice["logprobs"]["text_offset"].as_array().unwrap()[..prompt.len()];
        assert_eq!(json!(offsets), json!(expected));
    }
}

#[test]
fn a_model_that_tells_nothing_of_prompts_refuses_echo_with_log_probabilities() {
    let fake = Fake { capabilities: all_but(&[Feature::PromptLogprobs]), ..Fake::default() };
    let server = TestServer::with(fake, |_| {});
    let answer = completion(&server, json!({"echo": true, "logprobs": 1}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "echo"));
    assert!(answer.error("message").contains("`echo`"), "{}", answer.text);
    for more in [json!({"echo": true}), json!({"logprobs": 1})] {
        assert_eq!(completion(&server, more).status, 200);
    }
}

#[test]
fn more_is_not_told_of_prompts_than_one_answer_can_hold() {
    let server = TestServer::with(Fake::default(), |config| config.limits.prompt_logprobs = 24);
    let ask = |prompt: &str, logprobs: u32, n: u32| {
        let more = json!({"prompt": prompt, "echo": true, "logprobs": logprobs, "n": n});
        completion(&server, more)
    };
    assert_eq!(ask("aaaa", 2, 2).status, 200);
    for (prompt, logprobs, n) in [("aaaaa", 2, 2), ("aaaa", 3, 2), ("aaaa", 2, 3)] {
        let answer = ask(prompt, logprobs, n);
        assert_eq!((answer.status, answer.error("param").as_str()), (400, "echo"));
    }
    assert_eq!(completion(&server, json!({"prompt": "a".repeat(99), "echo": true})).status, 200);
}

#[test]
fn a_prompt_that_was_not_told_of_is_not_an_answer() {
    // Long enough for the answer to leave after the cut.
    let mut server =
        TestServer::with(Fake::default(), |config| config.timeouts.drain = Duration::from_secs(1));
    server.model.held.store(true, Ordering::SeqCst);
    let body = json!({"prompt": "a", "echo": true, "logprobs": 1});
    let mut client = Client::connect(server.address);
    client.send(
        "POST",
        "/v1/completions",
        &[("content-type", "application/json")],
        &body.to_string(),
    );
    while server.model.running.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    server.shut_down();
    let answer = client.answer();
    assert_eq!((answer.status, answer.error("code").as_str()), (503, "closed"), "{}", answer.text);
}

#[test]
fn log_probabilities_are_lists() {
    let server = TestServer::start();
    let json = completion(&server, json!({"logprobs": 2})).json();
    let logprobs = &json["choices"][0]["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["The", " fox", " ran", "."]));
    assert_eq!(logprobs["token_logprobs"], json!([-0.25, -0.25, -0.25, -0.25]));
    assert_eq!(logprobs["top_logprobs"][0], json!({"The": -0.25, " fox": -1.25}));
    // Behind the prompt, which is not told.
    assert_eq!(logprobs["text_offset"], json!([4, 7, 11, 15]));
    let none = completion(&server, json!({"logprobs": 0})).json();
    assert_eq!(none["choices"][0]["logprobs"]["top_logprobs"], json!([{}, {}, {}, {}]));
}

/// A model that says `，适合` in OpenAI's tokens: `适` is two of them.
fn in_parts() -> TestServer {
    let pieces: Vec<&'static [u8]> =
        vec!["，".as_bytes(), b"\xe9\x80", b"\x82", "合".as_bytes(), b" \xf0", b"", b""];
    let says = vec!["，", "", "适", "合", "", "", ""];
    TestServer::with(Fake { pieces, says, ..Fake::default() }, |_| {})
}

#[test]
fn parts_of_a_character_are_told_by_their_bytes_and_begin_where_it_does() {
    let server = in_parts();
    let more = json!({"prompt": "天气非常好", "logprobs": 3});
    let json = completion(&server, more.clone()).json();
    let logprobs = &json["choices"][0]["logprobs"];
    let bytes = ["bytes:\\xe9\\x80", "bytes:\\x82", "bytes: \\xf0"];
    let tokens = json!(["，", bytes[0], bytes[1], "合", bytes[2], "<|1005|>", "<|1006|>"]);
    assert_eq!(logprobs["tokens"], tokens);
    assert_eq!(logprobs["text_offset"], json!([5, 6, 6, 7, 8, 9, 9]));
    let top = json!({"，": -0.25, bytes[0]: -1.25, bytes[1]: -2.25});
    assert_eq!(logprobs["top_logprobs"][0], top, "no two fall together");
    assert_eq!(logprobs["top_logprobs"][4].as_object().unwrap().len(), 3, "nor do special ones");
    // Ids are the same prompt as their text.
    let ids: Vec<u32> = "天气非常好".chars().map(u32::from).collect();
    let of_ids = completion(&server, json!({"prompt": ids, "logprobs": 3})).json();
    assert_eq!(of_ids["choices"][0]["logprobs"], *logprobs);
    let streamed = merge_into(more, json!({"stream": true}));
    let chunks = completion(&server, streamed).chunks();
    for list in ["tokens", "text_offset", "top_logprobs"] {
        let parts = chunks.iter().filter_map(|c| c["choices"][0]["logprobs"][list].as_array());
        assert_eq!(json!(parts.flatten().cloned().collect::<Vec<_>>()), logprobs[list], "{list}");
    }
}

#[test]
fn what_a_stop_string_holds_back_moves_no_token() {
    let fake =
        Fake { says: vec!["a", "", "<b"], pieces: vec![b"a", b"<", b"b"], ..Fake::default() };
    let server = TestServer::with(fake, |_| {});
    let json = completion(&server, json!({"prompt": "x", "logprobs": 0, "stop": "<d"})).json();
    assert_eq!(json["choices"][0]["logprobs"]["text_offset"], json!([1, 2, 3]));
}

#[test]
fn every_protocol_tells_parts_of_characters_apart() {
    let server = in_parts();
    let parts = [("，", vec![239, 188, 140]), ("\\xe9\\x80", vec![233, 128]), ("\\x82", vec![130])];
    let is_told = |content: &Json| {
        for (entry, (token, bytes)) in content.as_array().unwrap().iter().zip(&parts) {
            assert_eq!((&entry["token"], &entry["bytes"]), (&json!(token), &json!(bytes)));
        }
        let top = content[0]["top_logprobs"].as_array().unwrap();
        assert_eq!(top[1]["token"], json!(parts[1].0));
        assert_eq!(top[2]["token"], json!(parts[2].0));
        // Responses tell the tokens of texts alone.
        if let Some(special) = content.get(5) {
            assert_eq!((&special["token"], &special["bytes"]), (&json!("<|1005|>"), &json!([])));
        }
    };
    let chat = server.chat(json!({"logprobs": true, "top_logprobs": 3})).json();
    is_told(&chat["choices"][0]["logprobs"]["content"]);
    let include = ["message.output_text.logprobs"];
    let body = json!({"input": "hi", "include": include, "top_logprobs": 3});
    let response = server.post("/v1/responses", &body).json();
    is_told(&response["output"][0]["content"][0]["logprobs"]);
    let messages = json!([{"role": "user", "content": "hi"}]);
    let body = json!({"model": "fake", "messages": messages, "logprobs": true, "top_logprobs": 3, "stream": false});
    is_told(&server.post("/api/chat", &body).json()["logprobs"]);
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
    for more in [
        json!({"logprobs": 1}),
        json!({"logprobs": 2, "echo": true, "prompt": "Oñce"}),
        json!({"logprobs": 1, "echo": true, "max_tokens": 0}),
        json!({"logprobs": 1, "echo": true, "prompt": "a".repeat(300)}),
    ] {
        let whole = completion(&server, more.clone());
        let (text, whole) = (texts(&whole), whole.json());
        let mut more = more;
        merge(&mut more, json!({"stream": true}));
        let chunks = completion(&server, more).chunks();
        for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            let parts = chunks.iter().filter_map(|c| c["choices"][0]["logprobs"][list].as_array());
            let joined: Vec<_> = parts.flatten().cloned().collect();
            assert_eq!(json!(joined), whole["choices"][0]["logprobs"][list], "{list}");
        }
        let said = chunks.iter().filter_map(|c| c["choices"][0]["text"].as_str());
        assert_eq!(vec![said.collect::<String>()], text);
    }
}

#[test]
fn embeddings_are_refused_by_name() {
    let server = TestServer::start();
    let answer = server.post("/v1/embeddings", &json!({"model": "fake", "input": "a"}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "model"));
    assert!(answer.error("message").contains("embed"));
}
