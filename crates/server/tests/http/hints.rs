//! Fields that change no answer: they are taken, and the header `x-ml-ignored` tells them.

use fake_model::FakeModel as Fake;
use serde_json::{Value as Json, json};

use crate::client::{Answer, Client};
use crate::{TestServer, merge};

fn ignored(answer: &Answer) -> Vec<&str> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let told = answer.header("x-ml-ignored").unwrap_or_default();
    told.split(", ").filter(|name| !name.is_empty()).collect()
}

fn server() -> TestServer {
    TestServer::with(Fake { calls: true, thinks: true, ..Fake::default() }, |_| {})
}

#[test]
fn hints_for_other_servers_are_told_and_change_nothing() {
    let server = server();
    let plain = server.chat(json!({"temperature": 0}));
    assert!(ignored(&plain).is_empty());
    let said = |answer: &Answer| answer.json()["choices"].clone();
    for (more, names) in [
        (json!({"cache_prompt": false, "id_slot": 3}), vec!["cache_prompt", "id_slot"]),
        (json!({"cache_prompt": true, "id_slot": -1, "priority": 0}), vec![]),
        (
            json!({"priority": 7, "keep_alive": "5m", "ttl": 60}),
            vec!["priority", "ttl", "keep_alive"],
        ),
        (json!({"provider": {"order": ["a"]}, "route": "fallback"}), vec!["provider", "route"]),
        (json!({"mirostat": 0, "mirostat_tau": 5.0, "typical_p": 1.0}), vec!["mirostat_tau"]),
        (
            json!({"dry_multiplier": 0, "dry_base": 1.75, "dry_sequence_breakers": ["\n"]}),
            vec!["dry_base", "dry_sequence_breakers"],
        ),
        (json!({"typical": 0, "dry_penalty_last_n": -1}), vec!["dry_penalty_last_n"]),
        (json!({"dry_multiplier": 0.0, "top_n_sigma": -1.0, "min_tokens": 0}), vec![]),
        (json!({"user": "a", "x": {}, "y": [], "z": ""}), vec!["x", "y", "z", "user"]),
        (
            json!({"messages": [{"role": "user", "content": "hi", "id": "m", "created_at": 1}]}),
            vec!["messages[].created_at", "messages[].id"],
        ),
        (
            json!({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}]}),
            vec!["messages[].content[].cache_control"],
        ),
    ] {
        let mut body = json!({"temperature": 0});
        merge(&mut body, more.clone());
        let answer = server.chat(body);
        assert_eq!(ignored(&answer), names, "{more}");
        assert_eq!(said(&answer), said(&plain), "{more}");
    }
    let streamed = server.chat(json!({"priority": 7, "stream": true}));
    assert_eq!(ignored(&streamed), ["priority"]);
}

#[test]
fn what_would_change_an_answer_is_refused() {
    let server = server();
    for (field, value) in [
        ("mirostat", json!(2)),
        ("tfs_z", json!(0.9)),
        ("min_length", json!(4)),
        ("bad_words", json!(["a"])),
        ("logits_processors", json!(["a"])),
        ("chat_template", json!("{{ x }}")),
        ("include_reasoning", json!(false)),
        ("frobnicate", json!(1)),
        ("best_of", json!(3)),
    ] {
        let answer = server.chat(json!({field: value}));
        assert_eq!((answer.status, answer.error("param").as_str()), (400, field));
    }
}

#[test]
fn other_names_are_the_same_fields() {
    let server = TestServer::start();
    let options = |more: Json| {
        let answer = server.chat(more);
        assert_eq!(answer.status, 200, "{}", answer.text);
        server.model.options.lock().unwrap().last().unwrap().clone()
    };
    assert_eq!(options(json!({"n_predict": 7})).max_tokens, Some(7));
    assert_eq!(options(json!({"max_new_tokens": 7})).max_tokens, Some(7));
    assert_eq!(options(json!({"min_new_tokens": 3})).min_tokens, 3);
    let unbounded = options(json!({})).max_tokens;
    for more in [json!({"max_tokens": -1}), json!({"n_predict": -1, "max_completion_tokens": -1})] {
        assert_eq!(options(more).max_tokens, unbounded);
    }
    assert_eq!(options(json!({"top_k": -1})).top_k, Some(0));
    assert_eq!(options(json!({"seed": -1})).seed, None);
    let penalised = options(json!({"repeat_penalty": 1.5, "repeat_last_n": 64}));
    assert_eq!((penalised.repetition_penalty, penalised.penalty_window), (Some(1.5), Some(64)));
    let off = options(json!({"repeat_penalty": 1.5, "repeat_last_n": 0}));
    // Also that of the model's own file.
    assert_eq!((off.repetition_penalty, off.presence_penalty), (Some(1.0), Some(0.0)));
    assert_eq!(options(json!({"repeat_last_n": 9})).penalty_window, Some(9));
    assert_eq!(options(json!({"do_sample": false})).temperature, Some(0.0));
    assert_eq!(
        options(json!({"logit_bias": [[5, false], [6, 1.5]]})).logit_bias[&5],
        f32::NEG_INFINITY
    );
    let short = options(json!({"num_ctx": 100, "max_tokens": 200}));
    assert!(short.max_tokens.unwrap() < 100);
    for constraint in [
        json!({"guided_choice": ["a", "b"]}),
        json!({"structured_outputs": {"choice": ["a", "b"]}}),
    ] {
        // Behind the thoughts that the model's format may have.
        let held = format!("{:?}", options(constraint).constraint);
        assert!(held.contains("ANSWER: /a|b/"), "{held}");
    }
    for schema in [
        json!({"json_schema": {"type": "array"}}),
        json!({"guided_json": {"type": "array"}}),
        json!({"response_format": {"type": "json_object", "schema": {"type": "array"}}}),
        json!({"response_format": {"type": "json_schema", "schema": {"type": "array"}}}),
    ] {
        let held = format!("{:?}", options(schema).constraint);
        assert!(held.contains("array"), "{held}");
    }
    let both = server.chat(json!({"n_predict": 7, "max_tokens": 8}));
    assert_eq!((both.status, both.error("param").as_str()), (400, "n_predict"));
}

#[test]
fn a_grammar_in_gbnf_holds_beside_what_a_models_format_adds() {
    let server = server();
    for more in [
        json!({"grammar": "root ::= \"yes\" | \"no\""}),
        json!({"structured_outputs": {"grammar": "root ::= \"yes\" | \"no\""}}),
        json!({"guided_choice": ["yes", "no"]}),
    ] {
        let answer = server.chat(more.clone());
        assert_eq!(answer.status, 200, "{more}: {}", answer.text);
        let held = server.model.options.lock().unwrap().last().unwrap().constraint.clone();
        let held = format!("{held:?}");
        assert!(held.contains("yes|no") && held.contains("<think>"), "{held}");
    }
    let bad = server.chat(json!({"grammar": "root ::= nothing"}));
    assert_eq!((bad.status, bad.error("param").as_str()), (400, "grammar"));
    assert!(bad.error("message").contains("`nothing`"), "{}", bad.text);
}

#[test]
fn reasoning_is_bounded_where_a_model_has_tokens_for_its_end() {
    let marks = &["<think>", "</think>"];
    let fake = || Fake { calls: true, thinks: true, ..Fake::default() };
    let server = TestServer::with(Fake { marks, ..fake() }, |_| {});
    let bound = |more: Json| {
        let answer = server.chat(more.clone());
        assert_eq!(ignored(&answer), [""; 0], "{more}");
        let options = server.model.options.lock().unwrap().last().unwrap().clone();
        options.reasoning_budget.map(|budget| (budget.marks.close, budget.tokens))
    };
    let close = |tokens| Some(("</think>".to_owned(), tokens));
    assert_eq!(bound(json!({})), None);
    assert_eq!(bound(json!({"reasoning_budget": -1})), None);
    for (more, tokens) in [
        (json!({"reasoning_budget": 0}), 0),
        (json!({"thinking_budget": 7}), 7),
        (json!({"thinking_token_budget": 7, "reasoning_budget": 5}), 5),
        (json!({"reasoning": {"max_tokens": 9}}), 9),
        (json!({"thinking": {"type": "enabled", "budget_tokens": 9}}), 9),
    ] {
        assert_eq!(bound(more.clone()), close(tokens), "{more}");
    }
    let asked = json!({"model": "fake", "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
        "thinking": {"type": "enabled", "budget_tokens": 2048}});
    assert_eq!(server.post("/v1/messages", &asked).status, 200);
    let options = server.model.options.lock().unwrap().last().unwrap().clone();
    assert_eq!(options.reasoning_budget.unwrap().tokens, 2048);

    // It thinks whatever its template is told, and can be ended.
    let stubborn = TestServer::with(Fake { marks, calls: true, ..Fake::default() }, |_| {});
    for more in [json!({"reasoning_effort": "none"}), json!({"enable_thinking": false})] {
        assert!(ignored(&stubborn.chat(more)).is_empty());
        let options = stubborn.model.options.lock().unwrap().last().unwrap().clone();
        assert_eq!(options.reasoning_budget.unwrap().tokens, 0);
    }
    // It has no tokens for that.
    let without = TestServer::with(fake(), |_| {});
    assert_eq!(ignored(&without.chat(json!({"reasoning_budget": 5}))), ["reasoning_budget"]);
    let none = without.chat(json!({"reasoning_budget": 0}));
    assert_eq!((none.status, none.error("param").as_str()), (400, "reasoning_budget"));
    let plain = TestServer::start();
    assert!(ignored(&plain.chat(json!({"reasoning_effort": "none"}))).is_empty());
}

#[test]
fn what_contradicts_itself_is_refused() {
    let server = server();
    let user = json!({"role": "user", "content": "hi"});
    let said = |more: Json| {
        let mut message = json!({"role": "assistant", "content": "a"});
        merge(&mut message, more);
        json!([user, message])
    };
    for (more, param) in [
        (json!({"logit_bias": [[5, false], [5, 1]]}), "logit_bias"),
        (json!({"do_sample": true}), "do_sample"),
        (json!({"reasoning_effort": "off"}), "reasoning_effort"),
        (json!({"reasoning": {"effort": ""}}), "reasoning.effort"),
        (json!({"reasoning": {"effort": "high", "enabled": false}}), "reasoning.effort"),
        (json!({"thinking": {"type": "enabled"}, "enable_thinking": false}), "thinking"),
        (
            json!({"messages": said(json!({"reasoning": "a", "reasoning_content": "b"}))}),
            "messages[1].reasoning",
        ),
        (
            json!({"messages": said(json!({"prefix": true, "partial": false}))}),
            "messages[1].partial",
        ),
        (
            json!({"messages": said(json!({"prefix": true})), "continue_final_message": false}),
            "continue_final_message",
        ),
        (
            json!({"messages": said(json!({"prefix": true})), "add_generation_prompt": true}),
            "continue_final_message",
        ),
        (json!({"parallel_reasoning": false}), "parallel_reasoning"),
    ] {
        let answer = server.chat(more.clone());
        assert_eq!((answer.status, answer.error("param").as_str()), (400, param), "{more}");
    }
    let long = json!({"prompt": "a long prompt", "num_ctx": 2});
    let answer = server.post("/v1/completions", &long);
    assert_eq!((answer.status, answer.error("code").as_str()), (400, "context_length_exceeded"));
    let many: serde_json::Map<_, _> = (0..100).map(|i| (format!("x{i}"), json!([]))).collect();
    assert_eq!(server.chat(Json::Object(many)).error("code"), "unknown_parameter");
}

#[test]
fn thoughts_come_back_in_each_form_that_clients_keep() {
    let server = server();
    for thoughts in [
        json!({"reasoning": "hm"}),
        json!({"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}),
        json!({"thinking_blocks": [{"type": "thinking", "thinking": "hm"}]}),
    ] {
        let mut message = json!({"role": "assistant", "content": "a"});
        merge(&mut message, thoughts.clone());
        let user = json!({"role": "user", "content": "hi"});
        let answer = server.chat(json!({"messages": [user, message, user]}));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let messages = server.model.messages().pop().unwrap();
        assert_eq!(messages[1].fields, [("reasoning_content".to_owned(), "hm".into())]);
    }
    // A tool's fields that are told to change nothing are not in the prompt.
    let tool = json!({"type": "function", "examples": [], "function": {"name": "f", "x": ""}});
    let answer = server.chat(json!({"tools": [tool]}));
    assert_eq!(ignored(&answer), ["tools[].examples", "tools[].function.x"]);
    let tools = server.model.chats.lock().unwrap().last().unwrap().1.tools.clone();
    assert!(!format!("{tools:?}").contains("examples"), "{tools:?}");
}

#[test]
fn usage_is_in_each_chunk_where_that_is_asked_for() {
    let server = server();
    let more = json!({"stream": true,
        "stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    let chunks = server.chat(more).chunks();
    let counts: Vec<_> =
        chunks.iter().map(|chunk| chunk["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert!(counts.is_sorted() && counts.last() > Some(&1), "{counts:?}");
    assert!(chunks.last().unwrap()["choices"].as_array().unwrap().is_empty());
}

#[test]
fn an_answer_that_was_begun_goes_on() {
    let server = server();
    let user = json!({"role": "user", "content": "hi"});
    let begun = json!({"role": "assistant", "content": "The fox"});
    let continues = |path: &str, body: Json| {
        let answer = server.post(path, &body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        server.model.chats.lock().unwrap().last().unwrap().1.continue_final_message
    };
    let chat = |more: Json| {
        let mut body = json!({"messages": [user, begun]});
        merge(&mut body, more);
        continues("/v1/chat/completions", body)
    };
    assert!(chat(json!({})) && chat(json!({"continue_final_message": true})));
    assert!(!chat(json!({"continue_final_message": false})));
    assert!(!chat(json!({"add_generation_prompt": true})));
    assert!(!chat(json!({"messages": [user]})));
    let mut marked = begun.clone();
    marked["prefix"] = json!(true);
    assert!(chat(json!({"messages": [user, marked]})));
    marked["prefix"] = json!(false);
    assert!(!chat(json!({"messages": [user, marked]})));
    let blank = json!({"role": "assistant", "content": " "});
    assert!(!chat(json!({"messages": [user, blank]})));
    let bad = server.chat(json!({"continue_final_message": true}));
    assert_eq!((bad.status, bad.error("param").as_str()), (400, "continue_final_message"));
    let both = json!({"messages": [user, begun], "continue_final_message": true,
        "add_generation_prompt": true});
    assert_eq!(server.chat(both).error("param"), "continue_final_message");

    let messages = json!({"model": "fake", "max_tokens": 9, "messages": [user, begun]});
    assert!(continues("/v1/messages", messages));
    assert!(continues("/api/chat", json!({"model": "fake", "messages": [user, begun]})));
}

#[test]
fn tools_of_other_servers_are_left_out() {
    let server = server();
    let seen = || server.model.chats.lock().unwrap().last().unwrap().1.tools.len();
    let own = json!({"type": "function", "name": "f", "parameters": {"type": "object"}});
    let body = json!({"model": "fake", "input": "hi", "tools": [own, {"type": "web_search",
        "external_web_access": false}, {"type": "image_generation"}]});
    let answer = server.post("/v1/responses", &body);
    assert_eq!(ignored(&answer), ["tools[].web_search", "tools[].image_generation"]);
    assert_eq!(seen(), 1);

    let body = json!({"model": "fake", "max_tokens": 9,
    "messages": [{"role": "user", "content": "hi"}], "tools": [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9},
        {"name": "f", "input_schema": {"type": "object"}, "input_examples": [{"a": 1}]},
    ]});
    let answer = server.post("/v1/messages", &body);
    assert_eq!(ignored(&answer), ["tools[].web_search_20250305", "tools[].max_characters"]);
    assert_eq!(seen(), 3);
    let tools = server.model.chats.lock().unwrap().last().unwrap().1.tools.clone();
    assert!(format!("{:?}", tools[2]).contains("Examples of its input"), "{tools:?}");
}

#[test]
fn an_anthropic_client_goes_on_without_a_thread_and_keeps_its_prompt() {
    let server = server();
    let body = |more: Json| {
        let mut body = json!({"model": "fake", "max_tokens": 9,
            "messages": [{"role": "user", "content": "hi"}]});
        merge(&mut body, more);
        body
    };
    let answer = server.post("/v1/messages", &body(json!({"thread": {"type": "create"}})));
    let error = &answer.json()["error"];
    assert_eq!(answer.status, 400);
    assert_eq!(
        error["details"],
        json!({"error_code": "thread_unsupported_request", "unsupported": ["thread"]})
    );
    let rendered = |session: &str| {
        let billing = format!("x-anthropic-billing-header: cc_version=2.1.197.{session};");
        let system =
            json!([{"type": "text", "text": billing}, {"type": "text", "text": "Be kind."}]);
        let answer = server.post("/v1/messages", &body(json!({"system": system})));
        assert_eq!(ignored(&answer), ["system[].x-anthropic-billing-header"]);
        server.model.messages().pop().unwrap()
    };
    assert_eq!(rendered("123"), rendered("ffc"));
}

#[test]
fn ollamas_options_are_taken_beside_their_object() {
    let server = server();
    let body = json!({"model": "fake", "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.5, "max_output_tokens": 7, "tool_choice": "none", "keep_alive": 0,
        "options": {"num_gpu": 99, "num_thread": 4, "num_batch": 512, "use_mlock": true, "top_k": -1}});
    let answer = server.post("/api/chat", &body);
    assert_eq!(
        ignored(&answer),
        [
            "keep_alive",
            "options.num_batch",
            "options.num_gpu",
            "options.use_mlock",
            "options.num_thread"
        ]
    );
    let options = server.model.options.lock().unwrap().last().unwrap().clone();
    assert_eq!((options.temperature, options.max_tokens), (Some(0.5), Some(7)));
    let mut twice = body;
    twice["options"]["temperature"] = json!(0.6);
    let answer = server.post("/api/chat", &twice);
    assert_eq!((answer.status, answer.json()["error"].is_string()), (400, true));
    let unload = server.post("/api/generate", &json!({"model": "fake", "keep_alive": 0}));
    assert_eq!(ignored(&unload), ["keep_alive"]);
}

#[test]
fn a_strict_server_tells_browsers_nothing_and_refuses() {
    let strict = TestServer::with(Fake::default(), |config| config.strict_fields = true);
    let answer = strict.chat(json!({"priority": 7}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "priority"));
    assert_eq!(strict.chat(json!({"x": []})).error("code"), "unknown_parameter");
    let open = TestServer::with(Fake::default(), |config| config.cors_origins = vec!["*".into()]);
    let headers = [("content-type", "application/json"), ("origin", "http://a")];
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "priority": 7}).to_string();
    let path = "/v1/chat/completions";
    let answer = Client::connect(open.address).request("POST", path, &headers, &body);
    let exposed = answer.header("access-control-expose-headers").unwrap();
    assert!(exposed.contains("x-ml-ignored") && ignored(&answer) == ["priority"]);
}
