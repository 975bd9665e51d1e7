//! Results of tools and the calls that they answer, and instructions that say nothing.

use fake_model::FakeModel as Fake;
use inference_core::Role;
use serde_json::{Value as Json, json};

use crate::TestServer;

fn server() -> TestServer {
    TestServer::with(Fake { calls: true, ..Fake::default() }, |_| {})
}

/// The protocols' requests with two calls, `a` of the tool `f` and `b` of the tool `g`, and results
/// with these ids; where each one's id is.
fn requests(ids: &[&str]) -> [(&'static str, Json, &'static str); 4] {
    let user = json!({"role": "user", "content": "hi"});
    let call = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}});
    let result =
        |id: &&str| json!({"role": "tool", "tool_call_id": id, "content": format!("of {id}")});
    let mut openai = vec![
        user.clone(),
        json!({"role": "assistant", "content": null, "tool_calls": [call("a", "f"), call("b", "g")]}),
    ];
    openai.extend(ids.iter().map(result));
    let call =
        |id: &str, name: &str| json!({"id": id, "function": {"name": name, "arguments": {}}});
    let mut ollama = vec![
        user.clone(),
        json!({"role": "assistant", "content": "", "tool_calls": [call("a", "f"), call("b", "g")]}),
    ];
    ollama.extend(ids.iter().map(result));
    let call = |id: &str, name: &str| json!({"type": "function_call", "call_id": id, "name": name, "arguments": "{}"});
    let mut items = vec![user.clone(), call("a", "f"), call("b", "g")];
    items.extend(ids.iter().map(
        |id| json!({"type": "function_call_output", "call_id": id, "output": format!("of {id}")}),
    ));
    let call =
        |id: &str, name: &str| json!({"type": "tool_use", "id": id, "name": name, "input": {}});
    let result = |id: &&str| json!({"type": "tool_result", "tool_use_id": id, "content": format!("of {id}")});
    let blocks: Vec<Json> = ids.iter().map(result).collect();
    let anthropic = json!([
        user,
        {"role": "assistant", "content": [call("a", "f"), call("b", "g")]},
        {"role": "user", "content": blocks},
    ]);
    [
        (
            "/v1/chat/completions",
            json!({"model": "fake", "messages": openai}),
            "messages[3].tool_call_id",
        ),
        ("/v1/responses", json!({"model": "fake", "input": items}), "input[4].call_id"),
        (
            "/v1/messages",
            json!({"model": "fake", "max_tokens": 9, "messages": anthropic}),
            "messages[2].content[1].tool_use_id",
        ),
        (
            "/api/chat",
            json!({"model": "fake", "messages": ollama, "stream": false}),
            "messages[3].tool_call_id",
        ),
    ]
}

#[test]
fn a_result_belongs_to_one_call_that_has_no_other_one() {
    let server = server();
    for (path, body, _) in requests(&["b", "a"]) {
        let answer = server.post(path, &body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let chats = server.model.chats.lock().unwrap();
        let results = chats.last().unwrap().0.iter().filter(|message| message.role == Role::Tool);
        let mut read: Vec<_> = results.filter_map(|message| message.content.as_str()).collect();
        read.sort_unstable();
        assert_eq!(read, ["of a", "of b"], "{path}");
    }
    for (ids, reason) in [(["a", "a"], "has its result already"), (["b", "x"], "no ")] {
        for (path, body, field) in requests(&ids) {
            let answer = server.post(path, &body);
            assert_eq!(answer.status, 400, "{path}: {}", answer.text);
            assert!(answer.text.contains(field) && answer.text.contains(reason), "{}", answer.text);
        }
    }
}

#[test]
fn ids_may_come_again_in_later_turns_and_results_by_name_in_any_order() {
    let server = server();
    let call = |name: &str| json!({"id": "call_0", "type": "function", "function": {"name": name, "arguments": "{}"}});
    let result = json!({"role": "tool", "tool_call_id": "call_0", "content": "x"});
    let messages = json!([
        {"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": [call("f")]}, result,
        {"role": "user", "content": "b"}, {"role": "assistant", "content": null, "tool_calls": [call("g")]}, result,
    ]);
    let answer = server.chat(json!({"messages": messages}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let call = |name: &str| json!({"function": {"name": name, "arguments": {}}});
    let result =
        |name: &str| json!({"role": "tool", "tool_name": name, "content": format!("of {name}")});
    let messages = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": [call("f"), call("g")]},
        result("g"), result("f"),
    ]);
    let answer =
        server.post("/api/chat", &json!({"model": "fake", "messages": messages, "stream": false}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let chats = server.model.chats.lock().unwrap();
    for message in chats.last().unwrap().0.iter().filter(|message| message.role == Role::Tool) {
        let field = |name: &str| {
            message.fields.iter().find(|(own, _)| own == name).unwrap().1.as_str().unwrap()
        };
        let is_of = match field("tool_call_id") {
            "call_1_0" => "f",
            _ => "g",
        };
        assert_eq!(field("name"), is_of);
        assert_eq!(message.content.as_str(), Some(format!("of {is_of}").as_str()));
    }
}

#[test]
fn results_come_before_what_the_user_says_beside_them() {
    let server = server();
    let messages = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "text", "text": "and"}, {"type": "tool_result", "tool_use_id": "a"}]},
    ]);
    let answer = server
        .post("/v1/messages", &json!({"model": "fake", "max_tokens": 9, "messages": messages}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let chats = server.model.chats.lock().unwrap();
    let roles: Vec<_> =
        chats.last().unwrap().0.iter().map(|message| message.role.as_str().to_owned()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user"]);
}

#[test]
fn instructions_that_say_nothing_are_no_turn() {
    let server = server();
    let user = json!([{"role": "user", "content": "hi"}]);
    let anthropic = |system: Json| json!({"model": "fake", "max_tokens": 9, "messages": user, "system": system});
    let with_empty = json!([{"role": "system", "content": ""}, {"role": "user", "content": "hi"}]);
    for (path, body) in [
        ("/v1/messages", anthropic(json!(""))),
        ("/v1/messages", anthropic(json!([]))),
        ("/v1/messages", anthropic(json!([{"type": "text", "text": ""}]))),
        ("/v1/messages/count_tokens", json!({"model": "fake", "messages": user, "system": ""})),
        ("/v1/messages", json!({"model": "fake", "max_tokens": 9, "messages": with_empty})),
        ("/v1/responses", json!({"model": "fake", "input": "hi", "instructions": ""})),
        ("/api/chat", json!({"model": "fake", "messages": with_empty, "stream": false})),
        ("/api/generate", json!({"model": "fake", "prompt": "hi", "system": "", "stream": false})),
    ] {
        let answer = server.post(path, &body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let chats = server.model.chats.lock().unwrap();
        let read = &chats.last().unwrap().0;
        assert_eq!(read.len(), 1, "{path}: {read:?}");
    }
    // OpenAI's own servers and others render what is given: an empty turn takes a template's own
    // instructions away.
    let answer = server.chat(json!({"messages": with_empty}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(server.model.chats.lock().unwrap().last().unwrap().0.len(), 2);
}
