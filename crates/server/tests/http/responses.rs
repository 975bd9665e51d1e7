//! OpenAI's responses: whole, in events, with thoughts, tools and errors of their own.

use fake_model::FakeModel as Fake;
use inference_core::{Constraint, Error, Role};
use serde_json::{Value as Json, json};

use crate::client::Answer;
use crate::{TestServer, merge, server_that_says as server};

pub const PATH: &str = "/v1/responses";

const CALL: &[&str] = &[
    "<think>",
    "hm",
    "</think>\n\n",
    "One moment.",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\"",
    ": 1}}\n</tool_call>",
    "<tool_call>\n{\"name\": \"n__patch\", \"arguments\": {\"input\": \"*** Begin\"}}\n</tool_call>",
    "after",
];

fn tools() -> Json {
    json!([
        {"type": "function", "name": "f", "description": "does", "parameters": {"type": "object"},
         "strict": false},
        {"type": "namespace", "name": "n", "description": "Files.", "tools": [
            {"type": "custom", "name": "patch", "description": "patches"}]},
    ])
}

pub fn ask(server: &TestServer, more: Json) -> Answer {
    let mut body = json!({"model": "fake", "input": "hi"});
    merge(&mut body, more);
    server.post(PATH, &body)
}

#[test]
fn effort_reaches_a_template_that_knows_it_and_is_told_by_one_that_does_not() {
    let server = server(&["a"]);
    for (effort, on) in [("none", false), ("low", true), ("max", true)] {
        let answer = ask(&server, json!({"reasoning": {"effort": effort}}));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let variables = server.model.chats.lock().unwrap().last().unwrap().1.clone();
        assert_eq!(variables.template_kwargs, [("enable_thinking".to_owned(), on.into())]);
    }
    let plain = TestServer::start();
    let told = ask(&plain, json!({"reasoning": {"effort": "low"}}));
    assert_eq!((told.status, told.header("x-ml-ignored")), (200, Some("reasoning.effort")));
    assert_eq!(ask(&plain, json!({"reasoning": {"effort": "none"}})).status, 200);
}

/// The events with their names, which their data repeats, and their numbers, which count up.
fn events(answer: &Answer) -> Vec<Json> {
    let names: Vec<_> =
        answer.text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let events: Vec<Json> =
        answer.events().iter().map(|data| serde_json::from_str(data).unwrap()).collect();
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(names, types);
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], json!(number));
    }
    events
}

/// The output that a client puts together from the pieces, without the last event.
fn collected(events: &[Json]) -> Vec<Json> {
    let mut output: Vec<Json> = Vec::new();
    for event in events {
        let index = event["output_index"].as_u64().unwrap_or_default() as usize;
        let name = event["type"].as_str().unwrap();
        let text = |field: &str| event[field].as_str().unwrap().to_owned();
        match name {
            "response.output_item.added" => {
                assert_eq!(output.len(), index, "items are opened one after the other");
                assert_eq!(event["item"]["status"], "in_progress");
                output.push(event["item"].clone());
                output[index]["collected"] = json!("");
            }
            "response.output_item.done" => {
                let whole = &event["item"];
                let held = [
                    &whole["content"][0]["text"],
                    &whole["summary"][0]["text"],
                    &whole["arguments"],
                    &whole["input"],
                ];
                let held = held.into_iter().find(|value| value.is_string()).unwrap();
                assert_eq!(*held, output[index]["collected"], "the pieces are the whole");
                assert_eq!(whole["id"], output[index]["id"]);
                output[index] = whole.clone();
            }
            _ if name.ends_with(".delta") => {
                assert_eq!(event["item_id"], output[index]["id"]);
                let so_far = output[index]["collected"].as_str().unwrap().to_owned();
                output[index]["collected"] = json!(so_far + &text("delta"));
            }
            _ if name.ends_with("part.added") => {
                assert_eq!(event["part"]["text"], "");
            }
            _ if name.ends_with("part.done") => {
                assert_eq!(event["part"]["text"], output[index]["collected"]);
            }
            _ if name.ends_with(".done") => {
                let field = ["text", "arguments", "input"];
                let field = field.into_iter().find(|field| event[*field].is_string()).unwrap();
                assert_eq!(event[field], output[index]["collected"]);
            }
            _ => {}
        }
    }
    output
}

/// An item without what differs from one answer to the next.
fn bare(mut item: Json) -> Json {
    item["id"] = json!(item["id"].as_str().unwrap().split('_').next().unwrap());
    if item.get("call_id").is_some() {
        item["call_id"] = json!("call");
    }
    item
}

#[test]
fn a_response_is_answered_whole() {
    let server = TestServer::start();
    let more = json!({
        "instructions": "Be kind.", "temperature": 0.5, "top_p": 0.9, "metadata": {"a": "b"},
        "user": "u", "max_output_tokens": 100,
    });
    let json = ask(&server, more).json();
    assert_eq!((&json["object"], &json["status"]), (&json!("response"), &json!("completed")));
    let item = &json["output"][0];
    assert_eq!((&item["type"], &item["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(item["content"][0]["type"], "output_text");
    assert_eq!(item["content"][0]["text"], "The fox ran.");
    for (name, value) in [
        ("instructions", json!("Be kind.")),
        ("temperature", json!(0.5)),
        ("metadata", json!({"a": "b"})),
        ("user", json!("u")),
        ("model", json!("fake")),
        ("tools", json!([])),
        ("store", json!(true)),
        ("error", json!(null)),
        ("max_output_tokens", json!(100)),
    ] {
        assert_eq!(json[name], value, "{name}");
    }
    let usage = &json["usage"];
    assert_eq!(usage["input_tokens_details"]["cached_tokens"], 1);
    assert_eq!(usage["output_tokens"], 4);
    assert_eq!(usage["total_tokens"], json!(usage["input_tokens"].as_u64().unwrap() + 4));
    let options = server.model.options.lock().unwrap()[0].clone();
    assert_eq!((options.temperature, options.top_p), (Some(0.5), Some(0.9)));
    let expected = [("system", "Be kind."), ("user", "hi")];
    let messages = server.model.last_messages();
    let messages: Vec<_> = messages.iter().map(|(r, t)| (r.as_str(), t.as_str())).collect();
    assert_eq!(messages, expected);

    let short = ask(&server, json!({"max_output_tokens": 2})).json();
    assert_eq!(short["status"], "incomplete");
    assert_eq!(short["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(short["output"][0]["status"], "incomplete");
}

#[test]
fn thoughts_text_and_calls_are_items_whole_and_in_a_stream() {
    let server = server(CALL);
    let whole = ask(&server, json!({"tools": tools()})).json();
    let output = whole["output"].as_array().unwrap();
    let kinds: Vec<_> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
    let expected = ["reasoning", "message", "function_call", "custom_tool_call", "message"];
    assert_eq!(kinds, expected);
    assert_eq!(output[0]["content"][0]["type"], "reasoning_text");
    assert_eq!(output[0]["content"][0]["text"].as_str().map(str::trim), Some("hm"));
    assert_eq!(output[0]["summary"], json!([]));
    assert_eq!(output[2]["arguments"], "{\"x\": 1}");
    assert_eq!((&output[2]["name"], output[2].get("namespace")), (&json!("f"), None));
    assert_eq!(output[3]["input"], "*** Begin");
    assert_eq!((&output[3]["name"], &output[3]["namespace"]), (&json!("patch"), &json!("n")));
    assert_ne!(output[2]["call_id"], output[3]["call_id"]);
    let thought = whole["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
    assert!((1..=3).contains(&thought), "{thought}");

    let events = events(&ask(&server, json!({"tools": tools(), "stream": true})));
    assert_eq!(events[0]["type"], "response.created");
    assert_eq!(events[0]["response"]["status"], "in_progress");
    assert_eq!(events[1]["type"], "response.in_progress");
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    let streamed = collected(&events);
    assert_eq!(json!(streamed), last["response"]["output"]);
    let of = |items: &[Json]| items.iter().cloned().map(bare).collect::<Vec<_>>();
    assert_eq!(of(&streamed), of(output));
    assert_eq!(last["response"]["usage"], whole["usage"]);

    let names: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    for name in [
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
    ] {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn a_stream_that_is_cut_off_is_incomplete() {
    let server = server(CALL);
    let events = events(&ask(&server, json!({"stream": true, "max_output_tokens": 4})));
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["output"][1]["status"], "incomplete");
    assert_eq!(collected(&events).len(), 2);
}

#[test]
fn thoughts_are_their_own_summary_where_one_is_asked_for() {
    let server = server(CALL);
    let more =
        json!({"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]});
    let whole = ask(&server, more.clone()).json();
    let item = &whole["output"][0];
    assert_eq!(item["summary"][0]["type"], "summary_text");
    assert_eq!(item.get("content"), None);
    let sealed = item["encrypted_content"].as_str().unwrap().to_owned();
    assert_eq!(whole["reasoning"]["summary"], "auto");
    let mut more = more;
    more["stream"] = json!(true);
    let events = events(&ask(&server, more));
    let names: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    for name in ["part.added", "text.delta", "text.done", "part.done"] {
        let name = format!("response.reasoning_summary_{name}");
        assert!(names.contains(&name.as_str()), "{name}");
    }
    assert_eq!(bare(collected(&events)[0].clone()), bare(item.clone()));

    // They come back, in whichever form a client keeps them.
    for thoughts in [
        json!({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": sealed}),
        json!({"type": "reasoning", "id": "r", "summary": item["summary"]}),
        json!({"type": "reasoning", "id": "r", "summary": [],
               "content": [{"type": "reasoning_text", "text": "hm"}]}),
    ] {
        let user = json!({"role": "user", "content": "hi"});
        let spoken = json!({"role": "assistant", "content": "Yes."});
        let items = json!([user, thoughts, spoken, user]);
        assert_eq!(ask(&server, json!({"input": items})).status, 200);
        let messages = server.model.messages().pop().unwrap();
        assert_eq!(messages.len(), 3);
        let (name, value) = &messages[1].fields[0];
        assert_eq!(
            (name.as_str(), value.as_str().map(str::trim)),
            ("reasoning_content", Some("hm"))
        );
        assert_eq!(messages[1].content.as_str(), Some("Yes."));
    }
    let sealed = json!([{"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}]);
    let answer = ask(&server, json!({"input": sealed}));
    assert_eq!(answer.error("param"), "input[0].encrypted_content");
    let answer = ask(&server, json!({"reasoning": {"summary": "concise"}}));
    assert_eq!((answer.status, answer.header("x-ml-ignored")), (200, Some("reasoning.summary")));
    assert_eq!(answer.json()["output"][0]["summary"][0]["type"], "summary_text");
}

#[test]
fn items_become_messages() {
    let server = server(&["a"]);
    let items = json!([
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "A"}]},
        {"role": "system", "content": "B"},
        {"role": "user", "content": [{"type": "input_text", "text": "one "},
                                     {"type": "input_text", "text": "two"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"x\": 1}"},
        {"type": "custom_tool_call", "call_id": "c2", "namespace": "n", "name": "patch", "input": "p"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {"type": "custom_tool_call_output", "call_id": "c2",
         "output": [{"type": "input_text", "text": "ok"}]},
        {"type": "message", "id": "m", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "So.", "annotations": []}]},
        {"role": "user", "content": "three"},
    ]);
    let answer = ask(&server, json!({"input": items, "tools": tools()}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let (messages, chat) = server.model.chats.lock().unwrap().last().unwrap().clone();
    let roles: Vec<_> = messages.iter().map(|message| message.role.to_string()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "assistant", "user"]);
    assert_eq!(messages[0].content.as_str(), Some("A\n\nB"));
    assert_eq!(messages[1].content.as_str(), Some("one two"));
    let calls = format!("{:?}", messages[2].fields);
    assert!(calls.contains("n__patch") && calls.contains("input"), "{calls}");
    assert_eq!(messages[3].content.as_str(), Some("done"));
    assert_eq!(messages[4].content.as_str(), Some("ok"));
    let tools = format!("{:?}", chat.tools);
    assert!(tools.contains("n__patch") && tools.contains("Files."), "{tools}");
    assert_eq!(chat.tools.len(), 2);
}

#[test]
fn a_template_that_wants_turns_gets_them() {
    let server = TestServer::with(Fake { strict: true, ..Fake::default() }, |_| {});
    let user = |text: &str| json!({"role": "user", "content": text});
    let answer = ask(&server, json!({"input": [user("a"), user("b")]}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(server.model.last_messages(), [("user".to_owned(), "a\n\nb".to_owned())]);
    // One that does not mind gets them as they are.
    let server = TestServer::start();
    ask(&server, json!({"input": [user("a"), user("b")]}));
    assert_eq!(server.model.last_messages().len(), 2);
    let server = TestServer::with(Fake { system_first: true, ..Fake::default() }, |_| {});
    let items = json!([user("a"), {"role": "developer", "content": "c"}, user("b")]);
    assert_eq!(ask(&server, json!({"input": items})).status, 200);
    let messages = server.model.messages().pop().unwrap();
    assert_eq!((messages.len(), messages[0].role == Role::System), (2, true));
}

#[test]
fn what_is_to_be_called_and_what_an_answer_holds_to_are_constraints() {
    let server = server(&["a"]);
    let arrived = |more: Json| {
        let answer = ask(&server, more);
        assert_eq!(answer.status, 200, "{}", answer.text);
        server.model.last_options().constraint
    };
    let with = |choice: Json| arrived(json!({"tools": tools(), "tool_choice": choice}));
    assert_eq!(with(json!("auto")), None);
    for choice in [
        json!("required"),
        json!({"type": "function", "name": "f"}),
        json!({"type": "custom", "namespace": "n", "name": "patch"}),
        json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}),
    ] {
        assert!(matches!(with(choice.clone()), Some(Constraint::Lark(_))), "{choice}");
    }
    let choice = json!({"type": "allowed_tools", "mode": "auto",
                        "tools": [{"type": "custom", "namespace": "n", "name": "patch"}]});
    with(choice);
    let told = format!("{:?}", server.model.chats.lock().unwrap().last().unwrap().1.tools);
    assert!(told.contains("n__patch") && !told.contains("does"), "{told}");
    let pattern = json!([{"type": "custom", "name": "time", "format":
        {"type": "grammar", "syntax": "regex", "definition": "[0-9]+:[0-9]+"}}]);
    let Some(Constraint::Lark(grammar)) = arrived(json!({"tools": pattern})) else {
        panic!("a grammar")
    };
    assert!(grammar.contains("^(?:[0-9]+:[0-9]+)$"), "{grammar}");

    let schema = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
    let format = json!({"type": "json_schema", "name": "x", "schema": schema, "strict": true});
    let held = arrived(json!({"text": {"format": format}}));
    // Thoughts may come before it.
    assert!(matches!(&held, Some(Constraint::Lark(g)) if g.contains("integer")), "{held:?}");
    assert_eq!(arrived(json!({"text": {"format": {"type": "text"}}})), None);
    let one = json!({"tools": tools(), "parallel_tool_calls": false});
    let server = self::server(CALL);
    let output = ask(&server, one).json()["output"].as_array().unwrap().len();
    assert_eq!(output, 3, "thoughts, text and one call");
}

#[test]
fn log_probabilities_are_those_of_the_text() {
    let server = server(&["<think>", "hm", "</think>", "The", " fox"]);
    let more = json!({"include": ["message.output_text.logprobs"], "top_logprobs": 2});
    let whole = ask(&server, more.clone()).json();
    let part = &whole["output"][1]["content"][0];
    let tokens = |list: &Json| {
        let list = list.as_array().unwrap().iter();
        list.map(|entry| entry["token"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let own = tokens(&part["logprobs"]);
    assert_eq!(own[own.len() - 2..], ["The", " fox"]);
    assert_eq!(part["logprobs"][0]["top_logprobs"].as_array().unwrap().len(), 2);
    let mut more = more;
    more["stream"] = json!(true);
    let events = events(&ask(&server, more));
    let streamed: Vec<_> = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .flat_map(|event| tokens(&event["logprobs"]))
        .collect();
    assert_eq!(streamed, own);
}

#[test]
fn a_stream_that_fails_says_so() {
    let fake = Fake { failure: Some(Error::Engine("device lost".into())), ..Fake::default() };
    let server = TestServer::with(fake, |_| {});
    let events = events(&ask(&server, json!({"stream": true})));
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.failed");
    let response = &last["response"];
    assert_eq!(
        (&response["status"], &response["error"]["code"]),
        (&json!("failed"), &json!("server_error"))
    );
    assert!(response["error"]["message"].as_str().unwrap().contains("device lost"));
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let fake = Fake { calls: true, thinks: true, ..Fake::says(&["a"]) };
    let server = TestServer::with(fake, |config| config.strict_fields = true);
    let tool = |more: Json| {
        let mut tool = json!({"type": "function", "name": "f"});
        merge(&mut tool, more);
        json!({"tools": [tool]})
    };
    let item = |item: Json| json!({"input": [item]});
    let lark = json!({"type": "grammar", "syntax": "lark", "definition": "start: \"a\""});
    for (more, param) in [
        (json!({"input": 1}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": [1]}), "input[0]"),
        (item(json!({"role": "root", "content": "a"})), "input[0].role"),
        (item(json!({"role": "user"})), "input[0].content"),
        (item(json!({"role": "user", "content": "a", "x": 1})), "input[0].x"),
        (
            item(json!({"role": "user", "content": [{"type": "input_image"}]})),
            "input[0].content[0].image_url",
        ),
        (
            item(json!({"role": "user", "content": [{"type": "input_text", "text": "a",
                "prompt_cache_breakpoint": {"mode": "explicit", "x": 1}}]})),
            "input[0].content[0].prompt_cache_breakpoint.x",
        ),
        (
            item(json!({"role": "assistant", "content": [{"type": "output_text", "text": "a",
                "logprobs": [{"token": "a", "top_logprobs": [{"token": 1}]}]}]})),
            "input[0].content[0].logprobs[0].top_logprobs[0].token",
        ),
        (item(json!({"type": "web_search_call", "id": "w"})), "input[0].type"),
        (item(json!({"type": "item_reference", "id": "nowhere"})), "input[0].id"),
        (
            item(json!({"type": "function_call_output", "call_id": "c", "output": "a"})),
            "input[0].call_id",
        ),
        (tool(json!({"name": "a b"})), "tools[0].name"),
        (tool(json!({"type": "web_search"})), "tools[0].type"),
        (tool(json!({"type": "local_shell"})), "tools[0].type"),
        (tool(json!({"defer_loading": true})), "tools[0].defer_loading"),
        (tool(json!({"async": true})), "tools[0].async"),
        (tool(json!({"allowed_callers": ["programmatic"]})), "tools[0].allowed_callers"),
        (tool(json!({"parameters": {"type": "string"}})), "tools[0].parameters"),
        (tool(json!({"type": "custom", "format": lark})), "tools[0].format.syntax"),
        (
            json!({"tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "f"}]}),
            "tools[1].name",
        ),
        (json!({"tool_choice": "sometimes"}), "tool_choice"),
        (json!({"tool_choice": {"type": "web_search"}}), "tool_choice.type"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"include": ["file_search_call.results"]}), "include[0]"),
        (json!({"reasoning": {"effort": "huge"}}), "reasoning.effort"),
        (json!({"reasoning": {"context": "all_turns"}}), "reasoning.context"),
        (json!({"text": {"verbosity": "low"}}), "text.verbosity"),
        (json!({"text": {"format": {"type": "yaml"}}}), "text.format.type"),
        (json!({"text": {"format": {"type": "json_schema", "name": "x"}}}), "text.format.schema"),
        (json!({"top_logprobs": 1}), "top_logprobs"),
        (json!({"stream_options": {"include_obfuscation": false}}), "stream_options"),
    ] {
        let answer = ask(&server, more);
        assert_eq!(answer.status, 400, "{param}: {}", answer.text);
        assert_eq!(answer.error("param"), param);
    }
    assert_eq!(server.model.options().len(), 0, "what is refused does not reach the engine");
    let answer = ask(&server, json!({"model": "gpt-5"}));
    assert_eq!((answer.status, answer.error("code").as_str()), (404, "model_not_found"));
}
