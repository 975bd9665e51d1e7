//! Requests of every protocol, changed at random: none is the server's fault, and none takes long.

use std::time::{Duration, Instant};

use fake_model::FakeModel as Fake;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value as Json, json};

use crate::TestServer;
use crate::client::Client;

/// Longer than any of them takes, by far.
const LONG: Duration = Duration::from_secs(5);

/// A body that is answered, for each path that takes one.
fn bodies() -> Vec<(&'static str, Json)> {
    let png = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk\
               +M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let function = json!({"name": "f", "description": "d", "parameters": schema});
    let tools = json!([{"type": "function", "function": function}]);
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let seen =
        json!([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": png}}]);
    let messages = json!([
        {"role": "system", "content": "s"},
        {"role": "user", "content": seen},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]);
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    let sampling = json!({"temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1, "seed": 1,
        "stop": ["x"], "logit_bias": {"7": -1}, "max_tokens": 4, "n": 2, "stop_token_ids": [3]});
    let with = |mut body: Json, more: &Json| {
        crate::merge(&mut body, more.clone());
        body
    };
    let use_tool = json!({"type": "tool_use", "id": "c", "name": "f", "input": {"a": "b"}});
    let result = json!({"type": "tool_result", "tool_use_id": "c", "content": "r"});
    let anthropic = json!([
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [use_tool]},
        {"role": "user", "content": [result]},
    ]);
    let items = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "r"},
    ]);
    let own_messages = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
        {"role": "tool", "tool_name": "f", "content": "r"},
    ]);
    let inline = json!({"mimeType": "image/png", "data": png.split(',').nth(1)});
    let contents = json!([
        {"role": "user", "parts": [{"text": "a"}, {"inlineData": inline}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": "b"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"a": 1}}}]},
    ]);
    let google_schema = json!({"type": "OBJECT", "properties": {"a": {"type": "STRING",
        "nullable": true}}, "propertyOrdering": ["a"]});
    let options = json!({"temperature": 0.5, "num_predict": 4, "stop": ["x"], "num_ctx": 512});
    vec![
        (
            "/v1/chat/completions",
            with(
                json!({"messages": messages, "tools": tools, "tool_choice": "auto",
            "stream": true, "stream_options": {"include_usage": true}, "logprobs": true,
            "top_logprobs": 2}),
                &sampling,
            ),
        ),
        ("/v1/chat/completions", json!({"messages": messages, "response_format": format})),
        (
            "/v1/completions",
            with(
                json!({"prompt": ["a", "b"], "echo": true, "logprobs": 2, "best_of": 2}),
                &sampling,
            ),
        ),
        (
            "/v1/messages",
            json!({"messages": anthropic, "max_tokens": 4, "system": "s", "model": "fake",
            "tools": [{"name": "f", "input_schema": schema}], "stop_sequences": ["x"],
            "tool_choice": {"type": "auto"}, "metadata": {"user_id": "u"}}),
        ),
        (
            "/v1/messages/count_tokens",
            json!({"messages": anthropic, "system": "s", "model": "fake"}),
        ),
        (
            "/v1/responses",
            json!({"input": items, "instructions": "s", "max_output_tokens": 4,
            "tools": [{"type": "function", "name": "f", "parameters": schema}], "metadata": {"a": "b"},
            "text": {"format": {"type": "text"}}, "include": ["message.output_text.logprobs"],
            "top_logprobs": 2}),
        ),
        ("/v1/responses/input_tokens", json!({"input": items})),
        (
            "/v1beta/models/fake:generateContent",
            json!({"contents": contents, "systemInstruction": {"parts": [{"text": "s"}]},
            "tools": [{"functionDeclarations": [{"name": "f", "parameters": google_schema}]}],
            "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
            "generationConfig": {"temperature": 0.5, "topK": 4, "maxOutputTokens": 4,
                "stopSequences": ["x"], "thinkingConfig": {"thinkingBudget": 8}}}),
        ),
        (
            "/v1beta/models/fake:streamGenerateContent",
            json!({"contents": contents, "generationConfig": {"responseSchema": google_schema,
                "responseLogprobs": true, "logprobs": 2}}),
        ),
        (
            "/v1beta/models/fake:countTokens",
            json!({"generateContentRequest": {"contents": contents}}),
        ),
        (
            "/api/chat",
            json!({"model": "fake", "messages": own_messages, "tools": tools, "options": options,
            "keep_alive": "5m", "stream": false}),
        ),
        (
            "/api/generate",
            json!({"model": "fake", "prompt": "a", "system": "s", "options": options,
            "format": schema}),
        ),
        ("/api/show", json!({"model": "fake"})),
        ("/api/embed", json!({"model": "vectors", "input": ["a", "b"], "truncate": true})),
        ("/v1/embeddings", json!({"input": ["a", [1, 2]], "encoding_format": "base64"})),
        ("/v1/rerank", json!({"query": "q", "documents": ["a", {"text": "b"}], "top_n": 1})),
        ("/v1/classify", json!({"input": ["a"], "labels": ["x", "y"]})),
        ("/v1/inspect", json!({"prompt": "a", "layers": [0], "values": true, "weights": true})),
        ("/tokenize", json!({"messages": messages, "chat_template_kwargs": {"a": 1}})),
        ("/detokenize", json!({"tokens": [97, 98]})),
        ("/apply-template", json!({"messages": messages, "tools": tools})),
    ]
}

/// A value that some field does not expect.
fn odd() -> impl Strategy<Value = Json> {
    let deep = (0..140).fold(json!(1), |inner, _| json!([inner]));
    prop_oneof![
        Just(json!(null)),
        Just(json!(true)),
        Just(json!(-1)),
        Just(json!(0)),
        Just(json!(1e308)),
        Just(json!(u64::MAX)),
        Just(json!(i64::MIN)),
        Just(json!("")),
        Just(json!("\u{0}\u{fffd}😀")),
        Just(json!("a".repeat(70_000))),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[[]], {"": [null]}])),
        Just(json!(vec![json!("a"); 3000])),
        Just(json!(vec![json!(97); 3000])),
        Just(json!({"type": "text", "text": "a"})),
        Just(json!({"role": "user", "content": "a"})),
        Just(deep),
        any::<i64>().prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
        ".{0,12}".prop_map(|text| json!(text)),
    ]
}

/// A change at a place of a body.
#[derive(Clone, Debug)]
enum Change {
    Put(Json),
    Remove,
    Add(String, Json),
    Repeat(usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => odd().prop_map(Change::Put),
        2 => Just(Change::Remove),
        1 => ("[a-z_]{0,8}", odd()).prop_map(|(name, value)| Change::Add(name, value)),
        1 => (2..200_usize).prop_map(Change::Repeat),
    ]
}

/// Counts the values in `json`, itself among them.
fn size(json: &Json) -> usize {
    let inner = match json {
        Json::Array(items) => items.iter().map(size).sum(),
        Json::Object(fields) => fields.values().map(size).sum(),
        _ => 0,
    };
    1 + inner
}

/// Does `change` at the value of this number, counted as [`size`] does.
fn apply(json: &mut Json, mut at: usize, change: &Change) {
    if at == 0 {
        match (change, json) {
            (Change::Put(value), json) => *json = value.clone(),
            (Change::Remove, json) => *json = Json::Null,
            (Change::Add(name, value), Json::Object(fields)) => {
                fields.insert(name.clone(), value.clone());
            }
            (Change::Add(_, value), Json::Array(items)) => items.push(value.clone()),
            (Change::Repeat(times), Json::Array(items)) => {
                *items = (0..*times).flat_map(|_| items.clone()).collect();
            }
            (Change::Repeat(times), Json::String(text)) => *text = text.repeat(*times),
            _ => {}
        }
        return;
    }
    at -= 1;
    let mut inner: Vec<&mut Json> = match json {
        Json::Array(items) => items.iter_mut().collect(),
        Json::Object(fields) => fields.values_mut().collect(),
        _ => return,
    };
    for value in &mut inner {
        let count = size(value);
        if at < count {
            return apply(value, at, change);
        }
        at -= count;
    }
}

fn server() -> TestServer {
    let fake = Fake { calls: true, thinks: true, ..Fake::sees(crate::pictures::limits()) };
    crate::embeddings::with_services(fake)
}

#[test]
fn no_change_of_a_request_is_the_servers_fault() {
    let server = server();
    let ask = |path: &str, body: &str| {
        let headers = [("content-type", "application/json"), ("anthropic-version", "2023-06-01")];
        let began = Instant::now();
        let answer = Client::connect(server.address).request("POST", path, &headers, body);
        (answer, began.elapsed())
    };
    let bodies = bodies();
    let counts: Vec<usize> = bodies.iter().map(|(_, body)| size(body)).collect();
    let place = (0..bodies.len()).prop_flat_map(move |which| (Just(which), 0..counts[which]));
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), change()), 0..3);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let config = Config { cases: 1200, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&(place, change(), changes), |((which, at), first, more)| {
        let (path, mut body) = bodies[which].clone();
        apply(&mut body, at, &first);
        for (at, change) in more {
            let at = at.index(size(&body));
            apply(&mut body, at, &change);
        }
        let (answer, time) = ask(path, &body.to_string());
        prop_assert!(answer.status < 500, "{path} {body}: {}", answer.text);
        let broke = answer.status == 200 && answer.text.contains("internal_error");
        prop_assert!(!broke, "{path} {body}: {}", answer.text);
        prop_assert!(time < LONG, "{path} took {time:?}: {body}");
        Ok(())
    });
    assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    for (path, body) in &bodies {
        let (answer, _) = ask(path, &body.to_string());
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    }
}
