//! `POST /v1/chat/completions`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use inference_core::{Constraint, Dry, Error, Feature, PenaltyScope, Role, Value};
use serde_json::{Value as Json, json};

use crate::TestServer;
use fake_model::{FakeModel as Fake, all_but};

#[test]
fn a_conversation_is_answered() {
    let server = TestServer::start();
    let answer = server.chat(json!({"model": "fake"}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let json = answer.json();
    assert_eq!(json["object"], "chat.completion");
    assert_eq!(json["model"], "fake");
    assert!(json["id"].as_str().unwrap().starts_with("chatcmpl-"));
    let choice = &json["choices"][0];
    let message = json!({"role": "assistant", "content": "The fox ran.", "refusal": null});
    assert_eq!(choice["message"], message);
    assert_eq!((&choice["index"], &choice["finish_reason"]), (&json!(0), &json!("stop")));
    let usage = json!({"prompt_tokens": 8, "completion_tokens": 4, "total_tokens": 12,
                       "prompt_tokens_details": {"cached_tokens": 1},
                       "completion_tokens_details": {"reasoning_tokens": 0}});
    assert_eq!(json["usage"], usage);
    let chats = server.model.chats.lock().unwrap();
    assert_eq!(chats.last().unwrap().0[0].role, Role::User);
}

#[test]
fn a_stream_says_what_the_whole_answer_says() {
    let server = TestServer::start();
    let more = json!({"logprobs": true, "top_logprobs": 2, "n": 3, "seed": 0});
    let whole = server.chat(more.clone()).json();
    let mut more = more;
    more["stream"] = json!(true);
    more["stream_options"] = json!({"include_usage": true});
    let answer = server.chat(more);
    assert_eq!(answer.header("cache-control"), Some("no-cache"));
    let mut chunks = answer.chunks();
    let last = chunks.pop().unwrap();
    assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &whole["usage"]));

    let mut texts = vec![String::new(); 3];
    let mut logprobs = vec![Vec::new(); 3];
    let mut reasons = vec![Json::Null; 3];
    for chunk in &chunks {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["usage"], Json::Null);
        let choice = &chunk["choices"][0];
        let index = choice["index"].as_u64().unwrap() as usize;
        assert_eq!(reasons[index], Json::Null, "nothing follows the last chunk");
        texts[index].push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        let content = choice["logprobs"]["content"].as_array();
        logprobs[index].extend(content.into_iter().flatten().cloned());
        reasons[index] = choice["finish_reason"].clone();
    }
    for (index, choice) in whole["choices"].as_array().unwrap().iter().enumerate() {
        assert_eq!(choice["message"]["content"], texts[index].as_str());
        assert_eq!(choice["logprobs"]["content"], json!(logprobs[index]));
        assert_eq!(choice["finish_reason"], reasons[index]);
    }
}

#[test]
fn without_include_usage_a_stream_has_none() {
    let server = TestServer::start();
    let chunks = server.chat(json!({"stream": true})).chunks();
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
}

#[test]
fn log_probabilities_have_texts_and_bytes() {
    let server = TestServer::start();
    let json = server.chat(json!({"logprobs": true, "top_logprobs": 2})).json();
    let content = json["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 4);
    let token = &content[1];
    assert_eq!((&token["token"], &token["logprob"]), (&json!(" fox"), &json!(-0.25)));
    assert_eq!(token["bytes"], json!(b" fox"));
    assert_eq!(token["top_logprobs"][1]["token"], " ran");
    assert_eq!(token["top_logprobs"][1]["logprob"], json!(-1.25));
}

#[test]
fn every_option_arrives_at_the_model() {
    let server = TestServer::start();
    let answer = server.chat(json!({
        "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "xtc_probability": 0.5,
        "xtc_threshold": 0.2, "repetition_penalty": 1.1, "presence_penalty": 0.5,
        "frequency_penalty": -0.5, "penalty_window": 64, "penalty_scope": "generated", "logit_bias": {"7": 1.5, "8": -100},
        "seed": 42, "stop": ["\n\n", "END"], "stop_token_ids": [5], "ignore_eos": true,
        "skip_special_tokens": false, "max_completion_tokens": 3, "logprobs": true,
        "top_logprobs": 2, "n": 2, "typical_p": 0.75, "top_n_sigma": 1.5, "dry_multiplier": 0.5,
        "dry_base": 2, "dry_allowed_length": 3, "dry_penalty_last_n": 64,
        "dry_sequence_breakers": ["END"],
    }));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json()["choices"][0]["finish_reason"], "length");
    let all = server.model.options.lock().unwrap();
    let one = &all[0];
    assert_eq!((one.temperature, one.top_p, one.top_k), (Some(0.5), Some(0.9), Some(40)));
    assert_eq!((one.min_p, one.repetition_penalty), (Some(0.05), Some(1.1)));
    assert_eq!((one.typical_p, one.top_n_sigma), (Some(0.75), Some(1.5)));
    let sequence_breakers = vec!["END".to_owned()];
    let penalty_last_n = Some(64);
    let (multiplier, base, allowed_length) = (0.5, 2.0, 3);
    let dry = Dry { multiplier, base, allowed_length, penalty_last_n, sequence_breakers };
    assert_eq!(one.dry.as_ref(), Some(&dry));
    let xtc = one.xtc.unwrap();
    assert_eq!((xtc.probability, xtc.threshold), (0.5, 0.2));
    assert_eq!((one.presence_penalty, one.frequency_penalty), (Some(0.5), Some(-0.5)));
    assert_eq!((one.penalty_window, one.penalty_scope), (Some(64), PenaltyScope::Generated));
    assert_eq!(
        one.logit_bias.clone().into_iter().collect::<Vec<_>>(),
        [(7, 1.5), (8, f32::NEG_INFINITY)]
    );
    assert_eq!(one.stop, ["\n\n", "END"]);
    assert_eq!((one.stop_token_ids.as_slice(), one.ignore_eos), (&[5][..], true));
    assert!(one.special_tokens && one.logprobs);
    assert_eq!((one.max_tokens, one.top_logprobs), (Some(3), 2));
    assert_eq!((one.seed, all[1].seed), (Some(42), Some(43)), "answers differ by their seed");
}

#[test]
fn the_context_bounds_max_tokens_and_a_prompt_beyond_it_is_named() {
    let mut fake = Fake::default();
    fake.info.context_length = 10;
    let server = TestServer::with(fake, |_| {});
    server.chat(json!({"max_tokens": 1000, "min_tokens": 500}));
    let seen = server.model.options.lock().unwrap()[0].clone();
    assert_eq!((seen.max_tokens, seen.min_tokens), (Some(2), 2));
    let long = json!({"messages": [{"role": "user", "content": "much too long"}]});
    let answer = server.post("/v1/chat/completions", &long);
    assert_eq!(answer.status, 400);
    assert_eq!(answer.error("code"), "context_length_exceeded");
    assert_eq!(answer.error("param"), "messages");
}

#[test]
fn formats_become_constraints() {
    let server = TestServer::start();
    let arrived = |more: Json| {
        let answer = server.chat(more);
        assert_eq!(answer.status, 200, "{}", answer.text);
        server.model.options.lock().unwrap().last().unwrap().constraint.clone()
    };
    let object = Value::Object(vec![("type".into(), "object".into())]);
    let schema = json!({"type": "json_schema", "json_schema":
                        {"name": "x", "strict": true, "schema": {"type": "object"}}});
    assert_eq!(
        arrived(json!({"response_format": schema})),
        Some(Constraint::JsonSchema(object.clone()))
    );
    let any = json!({"response_format": {"type": "json_object"}});
    assert_eq!(arrived(any), Some(Constraint::JsonSchema(object)));
    assert_eq!(arrived(json!({"response_format": {"type": "text"}})), None);
    // A grammar, so that no text of it reads as a mark of the model's.
    let Some(Constraint::Lark(grammar)) = arrived(json!({"regex": "a+"})) else {
        panic!("a grammar")
    };
    assert!(grammar.contains("ANSWER: /a+/"), "{grammar}");
    assert_eq!(arrived(json!({"grammar": "start: A"})), Some(Constraint::Lark("start: A".into())));
    let both = server.chat(json!({"regex": "a", "response_format": {"type": "json_object"}}));
    assert_eq!((both.status, both.error("param").as_str()), (400, "response_format"));
}

#[test]
fn what_the_model_does_not_honour_is_named_by_the_requests_field() {
    let refused = [
        Feature::Constraint,
        Feature::Logprobs,
        Feature::LogitBias,
        Feature::Sampling,
        Feature::Penalties,
        Feature::Stop,
        Feature::MinTokens,
        Feature::SpecialTokens,
        Feature::Seed,
        Feature::PenaltyWindow,
        Feature::DraftTokens,
    ];
    let fake = Fake { capabilities: all_but(&refused), ..Fake::default() };
    let server = TestServer::with(fake, |_| {});
    for (field, value) in [
        ("response_format", json!({"type": "json_object"})),
        ("regex", json!("a")),
        ("grammar", json!("a")),
        ("logprobs", json!(true)),
        ("logit_bias", json!({"1": 1})),
        ("temperature", json!(1)),
        ("presence_penalty", json!(1)),
        ("typical_p", json!(0.5)),
        ("top_n_sigma", json!(1)),
        ("dry_multiplier", json!(1)),
        ("stop", json!("a")),
        ("min_tokens", json!(4)),
        ("skip_special_tokens", json!(false)),
        ("xtc_probability", json!(0.5)),
        ("seed", json!(3)),
        ("penalty_window", json!(8)),
        ("draft_tokens", json!(4)),
    ] {
        let answer = server.chat(json!({field: value}));
        assert_eq!(answer.status, 400, "{field}");
        assert_eq!(answer.error("param"), field);
        assert_eq!(answer.error("code"), "unsupported_parameter", "{field}");
    }
}

#[test]
fn effort_reaches_a_template_that_knows_it_and_is_told_by_one_that_does_not() {
    let server = TestServer::start();
    for (more, field) in [
        (json!({"reasoning_effort": "high"}), "reasoning_effort"),
        (json!({"reasoning": {"effort": "low", "enabled": null}}), "reasoning.effort"),
        (json!({"enable_thinking": true}), "enable_thinking"),
        (json!({"thinking": {"type": "enabled"}}), "thinking.type"),
    ] {
        let answer = server.chat(more);
        assert_eq!((answer.status, answer.header("x-ml-ignored")), (200, Some(field)));
    }
    assert_eq!(server.chat(json!({"enable_thinking": false})).header("x-ml-ignored"), None);

    let server = TestServer::with(Fake { thinks: true, ..Fake::default() }, |_| {});
    assert_eq!(server.chat(json!({"reasoning_effort": "none"})).status, 200);
    let kwargs = server.model.chats.lock().unwrap().last().unwrap().1.template_kwargs.clone();
    assert_eq!(kwargs, [("enable_thinking".to_owned(), Value::from(false))]);
    for more in [
        json!({"enable_thinking": false}),
        json!({"thinking": {"type": "disabled"}}),
        json!({"reasoning": {"enabled": false}}),
        json!({"reasoning": {"effort": "none"}}),
    ] {
        assert_eq!(server.chat(more.clone()).status, 200, "{more}");
        let seen = server.model.chats.lock().unwrap().last().unwrap().1.template_kwargs.clone();
        assert_eq!(seen, kwargs, "{more}");
    }
    let both = json!({"reasoning_effort": "none", "enable_thinking": true});
    assert_eq!(server.chat(both).error("param"), "enable_thinking");
    let contradiction =
        json!({"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": true}});
    assert_eq!(server.chat(contradiction).error("param"), "reasoning_effort");
}

#[test]
fn a_failure_before_the_first_token_has_its_status_in_a_stream_too() {
    let failure = Some(Error::Engine("the device is lost".into()));
    let server = TestServer::with(Fake { failure, ..Fake::says(&[]) }, |_| {});
    for stream in [false, true] {
        let answer = server.chat(json!({"stream": stream}));
        assert_eq!(answer.status, 500);
        assert_eq!(answer.error("message"), "the device is lost");
    }
}

#[test]
fn a_failure_in_a_stream_is_an_event() {
    let failure = Some(Error::Engine("the device is lost".into()));
    let server = TestServer::with(Fake { failure, ..Fake::says(&[]) }, |config| {
        config.timeouts.keep_alive = Duration::from_millis(20);
    });
    server.model.held.store(true, Ordering::SeqCst);
    let model = server.model.clone();
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(120));
        model.held.store(false, Ordering::SeqCst);
    });
    let answer = server.chat(json!({"stream": true}));
    release.join().unwrap();
    assert_eq!(answer.status, 200);
    assert!(answer.text.contains(": waiting"), "{}", answer.text);
    let last: Json = serde_json::from_str(answer.events().last().unwrap()).unwrap();
    assert_eq!(last["error"]["message"], "the device is lost");
}

#[test]
fn a_panic_is_the_requests_own_error() {
    let server = TestServer::start();
    let body = json!({"messages": [{"role": "user", "content": "panic!"}]});
    let answer = server.post("/v1/chat/completions", &body);
    assert_eq!((answer.status, answer.error("code").as_str()), (500, "internal_error"));
    assert_eq!(server.chat(json!({})).status, 200, "the server lives on");
}
