//! Anthropic's messages: whole, in a stream, with thoughts, tools and errors of their own.

use fake_model::FakeModel as Fake;
use inference_core::{Constraint, Error, Role};
use inference_server::ApiKey;
use serde_json::{Value as Json, json};

use crate::client::{Answer, Client};
use crate::{TestServer, merge, server_that_says as server};

const PATH: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";
const JSON: (&str, &str) = ("content-type", "application/json");

const CALL: &[&str] = &[
    "<think>",
    "hm",
    "</think>\n\n",
    "One moment.",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\"",
    ": 1}}\n</tool_call>",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
];

fn tool() -> Json {
    json!({"name": "f", "description": "does", "input_schema": {"type": "object"}})
}

fn body(more: Json) -> Json {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let mut body = json!({"model": "fake", "max_tokens": 100, "messages": messages});
    merge(&mut body, more);
    body
}

fn ask(server: &TestServer, more: Json) -> Answer {
    server.post(PATH, &body(more))
}

/// The error's type and message.
fn error(answer: &Answer) -> (u16, String, String) {
    let json = answer.json();
    assert_eq!(json["type"], "error", "{}", answer.text);
    let field = |name: &str| json["error"][name].as_str().unwrap().to_owned();
    (answer.status, field("type"), field("message"))
}

/// The events with their names, which their data repeats.
fn events(answer: &Answer) -> Vec<Json> {
    let names: Vec<_> =
        answer.text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let events: Vec<Json> =
        answer.events().iter().map(|data| serde_json::from_str(data).unwrap()).collect();
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(names, types);
    events
}

/// The message that a client puts together from the events.
fn collected(events: &[Json]) -> Json {
    let mut message = events[0]["message"].clone();
    let mut partial = String::new();
    for event in events {
        let index = event["index"].as_u64().unwrap_or_default() as usize;
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                let content = message["content"].as_array_mut().unwrap();
                assert_eq!(content.len(), index, "blocks are opened one after the other");
                content.push(event["content_block"].clone());
                partial.clear();
            }
            "content_block_delta" => {
                let (block, delta) = (&mut message["content"][index], &event["delta"]);
                let (field, text) = match delta["type"].as_str().unwrap() {
                    "text_delta" => ("text", &delta["text"]),
                    "thinking_delta" => ("thinking", &delta["thinking"]),
                    "signature_delta" => ("signature", &delta["signature"]),
                    "input_json_delta" => {
                        partial.push_str(delta["partial_json"].as_str().unwrap());
                        continue;
                    }
                    other => panic!("{other}"),
                };
                let whole = format!("{}{}", block[field].as_str().unwrap(), text.as_str().unwrap());
                block[field] = json!(whole);
            }
            "content_block_stop" if message["content"][index]["type"] == "tool_use" => {
                message["content"][index]["input"] = serde_json::from_str(&partial).unwrap();
            }
            "message_delta" => {
                merge(&mut message, event["delta"].clone());
                message["usage"] = event["usage"].clone();
            }
            _ => {}
        }
    }
    message
}

#[test]
fn a_message_is_answered_whole() {
    let server = TestServer::start();
    let json = ask(&server, json!({"temperature": 0.5, "top_k": 3, "top_p": 0.9})).json();
    assert_eq!((&json["type"], &json["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(json["content"], json!([{"type": "text", "text": "The fox ran."}]));
    assert_eq!((&json["stop_reason"], &json["stop_sequence"]), (&json!("end_turn"), &json!(null)));
    // The fake's prompt is `<user>hi`, of which one token was cached.
    let usage = &json["usage"];
    assert_eq!((&usage["input_tokens"], &usage["cache_read_input_tokens"]), (&json!(7), &json!(1)));
    assert_eq!(usage["output_tokens"], 4);
    let options = server.model.options.lock().unwrap()[0].clone();
    assert_eq!(options.temperature, Some(0.5));
    assert_eq!((options.top_k, options.top_p), (Some(3), Some(0.9)));
    let short = ask(&server, json!({"max_tokens": 2})).json();
    assert_eq!(short["stop_reason"], "max_tokens");
    assert_eq!(ask(&server, json!({"max_tokens": 0})).json()["content"], json!([]));
}

#[test]
fn thoughts_text_and_calls_are_blocks_whole_and_in_a_stream() {
    let server = server(CALL);
    let whole = ask(&server, json!({"tools": [tool()]})).json();
    let kinds: Vec<_> =
        whole["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use", "tool_use"]);
    assert_eq!(whole["content"][0]["thinking"].as_str().map(str::trim), Some("hm"));
    assert_eq!(whole["content"][2]["input"], json!({"x": 1}));
    assert_eq!(whole["stop_reason"], "tool_use");
    let ids = [&whole["content"][2]["id"], &whole["content"][3]["id"]];
    assert!(ids[0] != ids[1] && ids[0].as_str().unwrap().starts_with("toolu_"), "{ids:?}");

    let events = events(&ask(&server, json!({"tools": [tool()], "stream": true})));
    assert_eq!(events[0]["type"], "message_start");
    assert_eq!(events[1]["type"], "ping");
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    let mut streamed = collected(&events);
    for (index, block) in whole["content"].as_array().unwrap().iter().enumerate() {
        if block["type"] == "tool_use" {
            streamed["content"][index]["id"] = block["id"].clone();
        }
    }
    for field in ["content", "stop_reason", "stop_sequence", "usage"] {
        assert_eq!(streamed[field], whole[field], "{field}");
    }
}

#[test]
fn thoughts_that_are_omitted_leave_their_block() {
    let server = server(CALL);
    let more = json!({"thinking": {"type": "adaptive", "display": "omitted"}, "tools": [tool()]});
    let whole = ask(&server, more.clone()).json();
    assert_eq!(
        (&whole["content"][0]["type"], &whole["content"][0]["thinking"]),
        (&json!("thinking"), &json!(""))
    );
    let mut more = more;
    more["stream"] = json!(true);
    let streamed = collected(&events(&ask(&server, more)));
    assert_eq!(streamed["content"][0], whole["content"][0]);
}

#[test]
fn thinking_and_effort_reach_the_template() {
    let server = server(&["a"]);
    let variables = |more: Json| {
        let answer = ask(&server, more);
        assert_eq!(answer.status, 200, "{}", answer.text);
        server.model.chats.lock().unwrap().last().unwrap().1.template_kwargs.clone()
    };
    let think = |on: bool| vec![("enable_thinking".to_owned(), on.into())];
    let enabled = json!({"thinking": {"type": "enabled", "budget_tokens": 2048}});
    assert_eq!(variables(enabled), think(true));
    let off = json!({"type": "disabled"});
    assert_eq!(variables(json!({"thinking": off})), think(false));
    assert_eq!(variables(json!({"thinking": {"type": "adaptive"}})), []);
    let low = json!({"effort": "low"});
    assert_eq!(variables(json!({"output_config": low})), think(true));
    assert_eq!(variables(json!({"thinking": off, "output_config": low})), think(false));

    let plain = TestServer::start();
    let strict = TestServer::with(Fake::default(), |config| config.strict_fields = true);
    for (more, name) in [
        (json!({"thinking": {"type": "enabled", "budget_tokens": 2048}}), "thinking.type"),
        (json!({"output_config": {"effort": "low"}}), "output_config.effort"),
    ] {
        let answer = ask(&plain, more.clone());
        let told = answer.header("x-ml-ignored").unwrap_or_default();
        assert!(answer.status == 200 && told.starts_with(name), "{told}");
        let (status, kind, message) = error(&ask(&strict, more));
        assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
        assert!(message.contains(name), "{message}");
    }
    assert_eq!(ask(&plain, json!({"thinking": off})).status, 200);
    assert_eq!(ask(&plain, json!({"output_config": {"effort": "high"}})).status, 200);
}

#[test]
fn hints_what_to_cache_are_read_wherever_they_stand() {
    let server = server(&["a"]);
    let of = |hint: &Json| {
        let mut hinted = tool();
        hinted["cache_control"] = hint.clone();
        let text = json!([{"type": "text", "text": "a", "cache_control": hint}]);
        [
            (json!({"system": text}), "system[0]"),
            (json!({"messages": [{"role": "user", "content": text}]}), "messages[0].content[0]"),
            (json!({"tools": [hinted]}), "tools[0]"),
        ]
    };
    for (more, _) in of(&json!({"type": "ephemeral", "ttl": "1h"})) {
        assert_eq!(ask(&server, more.clone()).status, 200, "{more}");
    }
    for (hint, field) in [(json!({"type": "durable"}), "type"), (json!({"x": 1}), "x")] {
        for (more, at) in of(&hint) {
            let (status, _, message) = error(&ask(&server, more));
            let name = format!("{at}.cache_control.{field}");
            assert!(status == 400 && message.contains(&name), "{message}");
        }
    }
}

#[test]
fn calls_and_their_results_become_messages() {
    let server = server(&["a"]);
    let messages = json!([
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b",
            "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}},
            {"type": "tool_use", "id": "2", "name": "f", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "1", "content": "one"},
            {"type": "tool_result", "tool_use_id": "2", "is_error": true,
             "content": [{"type": "text", "text": "two"}]},
            {"type": "text", "text": "go on"}]},
        {"role": "user", "content": "please"},
    ]);
    let more = json!({"messages": messages, "tools": [tool()], "system": "be brief"});
    let answer = ask(&server, more);
    assert_eq!(answer.status, 200, "{}", answer.text);
    let chats = server.model.chats.lock().unwrap();
    let (messages, chat) = chats.last().unwrap();
    let read: Vec<_> =
        messages.iter().map(|m| (m.role.clone(), m.content.as_str().unwrap_or("-"))).collect();
    let expected = [
        (Role::System, "be brief"),
        (Role::User, "a\n\nb"),
        (Role::Assistant, "-"),
        (Role::Tool, "one"),
        (Role::Tool, "Error: two"),
        (Role::User, "go on\n\nplease"),
    ];
    assert_eq!(read, expected);
    let fields: Vec<_> = messages[2].fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(fields, ["reasoning_content", "tool_calls"]);
    let result: Vec<_> =
        messages[3].fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(result, [("tool_call_id", Some("1")), ("name", Some("f"))]);
    let function = chat.tools[0].get("function").unwrap();
    assert_eq!(function.get("name").unwrap().as_str(), Some("f"));
    assert!(function.get("parameters").is_some());
}

#[test]
fn instructions_may_stand_anywhere() {
    let messages = json!([
        {"role": "system", "content": "first"},
        {"role": "user", "content": "a"},
        {"role": "system", "content": [{"type": "text", "text": "later"}]},
        {"role": "user", "content": "b"},
    ]);
    let roles = |server: &TestServer| {
        let answer = ask(server, json!({"messages": messages, "system": "top"}));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let chats = server.model.chats.lock().unwrap();
        let read = |m: &inference_core::Message| {
            format!("{}: {}", m.role, m.content.as_str().unwrap_or_default())
        };
        chats.last().unwrap().0.iter().map(read).collect::<Vec<_>>()
    };
    let at_their_places = ["system: top\n\nfirst", "user: a", "system: later", "user: b"];
    assert_eq!(roles(&TestServer::start()), at_their_places);
    let strict = Fake { system_first: true, ..Fake::default() };
    let moved = ["system: top\n\nfirst\n\nlater", "user: a\n\nb"];
    assert_eq!(roles(&TestServer::with(strict, |_| {})), moved);
}

#[test]
fn choices_schemas_and_stops_hold() {
    let server = server(CALL);
    let arrived = |more: Json| {
        let answer = ask(&server, more);
        assert_eq!(answer.status, 200, "{}", answer.text);
        server.model.options.lock().unwrap().last().unwrap().clone()
    };
    for choice in [json!({"type": "any"}), json!({"type": "tool", "name": "f"})] {
        let options = arrived(json!({"tools": [tool()], "tool_choice": choice}));
        assert!(matches!(options.constraint, Some(Constraint::Lark(_))));
    }
    let none = arrived(json!({"tools": [tool()], "tool_choice": {"type": "none"}}));
    assert_eq!(none.constraint, None);
    let format = json!({"format": {"type": "json_schema", "schema": {"type": "object"}}});
    assert!(arrived(json!({"output_config": format})).constraint.is_some());
    assert_eq!(arrived(json!({"stop_sequences": ["x"]})).stop, ["x"]);
    let one = json!({"type": "auto", "disable_parallel_tool_use": true});
    let whole = ask(&server, json!({"tools": [tool()], "tool_choice": one})).json();
    assert_eq!(whole["content"].as_array().unwrap().len(), 3);
    assert_eq!(whole["stop_reason"], "tool_use");
}

#[test]
fn tokens_are_counted_without_an_answer() {
    let server = TestServer::start();
    let messages = json!([{"role": "user", "content": "hi"}]);
    let answer = server.post(COUNT, &json!({"model": "fake", "messages": messages}));
    assert_eq!(answer.json(), json!({"input_tokens": 8}));
    assert!(server.model.options.lock().unwrap().is_empty());
    let with_more = body(json!({}));
    assert_eq!(error(&server.post(COUNT, &with_more)).0, 400, "`max_tokens` means nothing there");
}

#[test]
fn what_is_not_honoured_is_named_in_a_body_of_its_own() {
    let fake = Fake { calls: true, thinks: true, ..Fake::default() };
    let server = TestServer::with(fake, |config| config.strict_fields = true);
    let user = |content: Json| json!({"messages": [{"role": "user", "content": content}]});
    let image = json!([{"type": "image", "source": {"type": "url", "url": "x"}}]);
    let result = json!([{"type": "tool_result", "tool_use_id": "1"}]);
    let used = json!([{"type": "tool_use", "id": "1", "name": "f", "input": {}}]);
    let begun = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": used}]);
    let with = |tool: Json| json!({"tools": [tool]});
    let string = json!({"name": "f", "input_schema": {"type": "string"}});
    for (more, name) in [
        (json!({"x": 1}), "`x`"),
        (json!({"speed": "fast"}), "`speed`"),
        (json!({"container": "a"}), "`container`"),
        (json!({"temperature": 2}), "`temperature`"),
        (json!({"max_tokens": null}), "`max_tokens`"),
        (json!({"messages": []}), "`messages`"),
        (user(image), "`messages[0].content[0].source.url`"),
        (user(result), "`messages[0].content[0].tool_use_id`"),
        (json!({"messages": [{"role": "tool", "content": "a"}]}), "`messages[0].role`"),
        (json!({"messages": [{"role": "user", "content": "a", "y": 1}]}), "`messages[0].y`"),
        (json!({"messages": begun}), "`messages`"),
        (json!({"thinking": {"type": "between_tools"}}), "`thinking.type`"),
        (json!({"thinking": {"type": "enabled"}}), "`thinking.budget_tokens`"),
        (json!({"output_config": {"effort": "none"}}), "`output_config.effort`"),
        (json!({"output_config": {"format": {"type": "text"}}}), "`output_config.format.type`"),
        (with(json!({"type": "web_search_20250305", "name": "w"})), "`tools[0].type`"),
        (with(json!({"name": "f"})), "`tools[0].input_schema`"),
        (with(json!({"name": "f", "input_schema": {}, "z": 1})), "`tools[0].z`"),
        (json!({"tool_choice": {"type": "any"}}), "`tool_choice`"),
        (json!({"tools": [string], "tool_choice": {"type": "any"}}), "`tools[0].input_schema`"),
        (json!({"stop_sequences": vec!["a"; 17]}), "`stop_sequences`"),
    ] {
        let (status, kind, message) = error(&ask(&server, more.clone()));
        assert_eq!((status, kind.as_str()), (400, "invalid_request_error"), "{more}: {message}");
        assert!(message.contains(name), "{more}: {message}");
    }
    assert!(server.model.options.lock().unwrap().is_empty(), "nothing reaches the engine");
    let other = error(&ask(&server, json!({"model": "other"})));
    assert_eq!((other.0, other.1.as_str()), (404, "not_found_error"));
}

#[test]
fn errors_before_a_route_is_known_are_anthropics_too() {
    let keyed = TestServer::with(Fake::default(), |config| {
        config.keys.extend(ApiKey::new("secret"));
        config.limits.body_bytes = 1000;
    });
    let text = body(json!({})).to_string();
    let ask = |headers: &[(&str, &str)], path: &str, text: &str| {
        Client::connect(keyed.address).request("POST", path, headers, text)
    };
    let key = ("x-api-key", "secret");
    let version = ("anthropic-version", "2023-06-01");
    let answer = ask(&[JSON, key, version], PATH, &text);
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("request-id"), answer.header("x-request-id"));
    assert_eq!(ask(&[JSON, ("authorization", "Bearer secret")], PATH, &text).status, 200);
    let kind = |answer: &Answer| {
        let (status, kind, _) = error(answer);
        (status, kind)
    };
    let kinds = |status: u16, kind: &str| (status, kind.to_owned());
    assert_eq!(kind(&ask(&[JSON], PATH, &text)), kinds(401, "authentication_error"));
    let wrong = [JSON, key, ("authorization", "Bearer other")];
    assert_eq!(kind(&ask(&wrong, PATH, &text)), kinds(401, "authentication_error"));
    let origin = [JSON, key, ("origin", "http://elsewhere")];
    assert_eq!(kind(&ask(&origin, PATH, &text)), kinds(403, "permission_error"));
    assert_eq!(kind(&ask(&[JSON, key], PATH, "{")), kinds(400, "invalid_request_error"));
    let long = "a".repeat(2000);
    assert_eq!(kind(&ask(&[JSON, key], PATH, &long)), kinds(413, "request_too_large"));
    let nowhere = "/v1/messages/nowhere";
    assert_eq!(kind(&ask(&[JSON, key], nowhere, &text)), kinds(404, "not_found_error"));
    // Elsewhere they are OpenAI's.
    assert_eq!(ask(&[JSON], "/v1/completions", "{}").error("code"), "invalid_api_key");
}

#[test]
fn each_version_of_the_protocol_is_served_alike() {
    let server = server(&["a"]);
    let ask = |version: &str, path: &str, more: Json| {
        let headers = [JSON, ("anthropic-version", version)];
        Client::connect(server.address).request("POST", path, &headers, &body(more).to_string())
    };
    let cited = json!([{"type": "text", "text": "a", "citations": [{"type": "char_location"}]}]);
    let document = json!([{"type": "document", "source": {"type": "text", "data": "a"}}]);
    let user = |content: &Json| json!({"role": "user", "content": content});
    let assistant = json!({"role": "assistant", "content": document});
    for version in ["2023-01-01", "2023-06-01", "2026-10-21"] {
        let sampled = json!({"temperature": 0.5, "top_p": 0.9, "top_k": 3});
        let answer = ask(version, PATH, sampled);
        assert_eq!(answer.status, 200, "{version}: {}", answer.text);
        assert_eq!(answer.json()["content"], json!([{"type": "text", "text": "a"}]), "{version}");
        let options = server.model.options.lock().unwrap().pop().unwrap();
        let sampling = (options.temperature, options.top_p, options.top_k);
        assert_eq!(sampling, (Some(0.5), Some(0.9), Some(3)), "{version}");
        for (messages, name) in [
            (json!([user(&cited)]), "`messages[0].content[0].citations`"),
            (
                json!([user(&json!("a")), assistant, user(&json!("b"))]),
                "`messages[1].content[0].type`",
            ),
        ] {
            let (status, _, message) = error(&ask(version, PATH, json!({"messages": messages})));
            assert!(status == 400 && message.contains(name), "{version}: {message}");
        }
    }
    for path in [PATH, COUNT] {
        let (status, kind, message) = error(&ask("2022-01-01", path, json!({})));
        assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
        assert!(
            message.contains("`anthropic-version`") && message.contains("`2026-10-21`"),
            "{message}"
        );
    }
}

#[test]
fn a_failure_is_told_in_the_protocols_words() {
    let refusing = |refusal: Error| {
        TestServer::with(Fake { refusal: Some(refusal), ..Fake::default() }, |_| {})
    };
    let server = refusing(Error::PromptTooLong { tokens: 20, limit: 10 });
    for more in [json!({}), json!({"stream": true})] {
        let (status, _, message) = error(&ask(&server, more));
        assert_eq!((status, message.as_str()), (400, "prompt is too long: 20 tokens > 10 maximum"));
    }
    let answer = ask(&refusing(Error::QueueFull { limit: 1 }), json!({}));
    assert_eq!(error(&answer).1, "rate_limit_error");
    assert!(answer.header("retry-after").is_some());
    let answer = ask(&refusing(Error::Closed), json!({}));
    assert_eq!((answer.status, error(&answer).1.as_str()), (503, "overloaded_error"));
}

#[test]
fn a_stream_that_waits_is_kept_alive_and_one_that_breaks_says_why() {
    let fake = Fake { says: vec!["a"; 150], ..Fake::default() };
    let server = TestServer::with(fake, |config| {
        config.timeouts.keep_alive = std::time::Duration::from_millis(20);
    });
    let hold = |held: bool| {
        server.model.held.store(held, std::sync::atomic::Ordering::SeqCst);
    };
    hold(true);
    let mut client = Client::connect(server.address);
    client.send("POST", PATH, &[JSON], &body(json!({"stream": true})).to_string());
    let begun = client.read_until("event: ping\ndata: {\"type\":\"ping\"}\n\n");
    assert!(begun.contains("event: message_start"), "{begun}");
    client.read_until("event: ping");
    *server.model.panics.lock().unwrap() = "step";
    hold(false);
    let rest = client.read_until("\"api_error\"");
    assert!(rest.contains("event: error") && !rest.contains("message_stop"), "{rest}");
    *server.model.panics.lock().unwrap() = "";
}
