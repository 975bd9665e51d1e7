//! Nothing is ignored: every field of OpenAI's requests has an effect, or is refused by name.

use serde_json::{Value as Json, json};

use crate::client::Answer;
use crate::{TestServer, merge};
use fake_model::FakeModel as Fake;

/// The server's reaction to a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// It is accepted.
    Ok,
    /// It is a 400 that names it.
    Refused,
    /// It is accepted, and the header `x-ml-ignored` names it; a 400 where the server is strict.
    Told,
}

use Fate::{Ok, Refused, Told};

/// Each field of OpenAI's chat request with a value that asks for something, and one that asks for
/// nothing.
fn chat_fields() -> Vec<(&'static str, Json, Fate)> {
    vec![
        ("model", json!("fake"), Ok),
        ("audio", json!({"voice": "alloy", "format": "mp3"}), Refused),
        ("frequency_penalty", json!(0.1), Ok),
        ("function_call", json!("auto"), Refused),
        ("function_call", json!("none"), Ok),
        ("functions", json!([{"name": "f"}]), Refused),
        ("logit_bias", json!({"5": 1}), Ok),
        ("logit_bias", json!({"05": 1}), Refused),
        ("logit_bias", json!({"+5": 1}), Refused),
        ("logprobs", json!(true), Ok),
        ("max_completion_tokens", json!(5), Ok),
        ("max_tokens", json!(5), Ok),
        ("max_tokens", json!(5.0), Ok),
        ("max_tokens", json!(5.5), Refused),
        ("metadata", json!({"a": "b"}), Ok),
        ("modalities", json!(["text", "audio"]), Refused),
        ("modalities", json!(["text"]), Ok),
        ("moderation", json!({"model": "m"}), Refused),
        ("n", json!(2), Ok),
        ("parallel_tool_calls", json!(false), Ok),
        ("prediction", json!({"type": "content", "content": "a"}), Told),
        ("presence_penalty", json!(0.1), Ok),
        ("prompt_cache_key", json!("a"), Ok),
        ("prompt_cache_options", json!({"mode": "implicit"}), Told),
        ("prompt_cache_retention", json!("24h"), Told),
        ("prompt_cache_retention", json!("in_memory"), Ok),
        ("reasoning_effort", json!("high"), Told),
        ("reasoning_effort", json!("none"), Ok),
        ("response_format", json!({"type": "json_object"}), Ok),
        ("safety_identifier", json!("a"), Ok),
        ("seed", json!(-1), Ok),
        ("service_tier", json!("flex"), Told),
        ("service_tier", json!("auto"), Ok),
        ("stop", json!("a"), Ok),
        ("store", json!(true), Told),
        ("store", json!(false), Ok),
        ("stream", json!(true), Ok),
        ("stream_options", json!({"include_usage": true}), Told),
        ("temperature", json!(1), Ok),
        ("tool_choice", json!("auto"), Ok),
        ("tools", json!([{"type": "function", "function": {"name": "f"}}]), Ok),
        ("top_logprobs", json!(1), Refused),
        ("top_p", json!(0.5), Ok),
        ("user", json!("a"), Ok),
        ("verbosity", json!("low"), Refused),
        ("verbosity", json!("medium"), Ok),
        ("web_search_options", json!({}), Told),
    ]
}

fn completion_fields() -> Vec<(&'static str, Json, Fate)> {
    vec![
        ("model", json!("fake"), Ok),
        ("best_of", json!(2), Ok),
        ("echo", json!(true), Ok),
        ("frequency_penalty", json!(0.1), Ok),
        ("logit_bias", json!({"5": 1}), Ok),
        ("logprobs", json!(2), Ok),
        ("max_tokens", json!(5), Ok),
        ("n", json!(2), Ok),
        ("presence_penalty", json!(0.1), Ok),
        ("seed", json!(1), Ok),
        ("stop", json!(["a"]), Ok),
        ("stream", json!(true), Ok),
        ("stream_options", json!({"include_usage": true}), Told),
        ("suffix", json!("a"), Refused),
        ("temperature", json!(1), Ok),
        ("top_p", json!(0.5), Ok),
        ("user", json!("a"), Ok),
        ("messages", json!([]), Told),
    ]
}

/// The fields of `of` in OpenAI's own description; the file says where they are from.
pub fn published(of: &str) -> Vec<String> {
    let fixture: Json = serde_json::from_str(include_str!("openai_fields.json")).unwrap();
    serde_json::from_value(fixture[of].clone()).unwrap()
}

#[test]
fn the_fields_that_are_walked_are_those_that_openai_publishes() {
    let body = ["messages", "prompt"];
    for (of, fields) in [("chat", chat_fields()), ("completion", completion_fields())] {
        for name in published(of).iter().filter(|name| !body.contains(&name.as_str())) {
            assert!(fields.iter().any(|(field, ..)| field == name), "{of}: `{name}` is not walked");
        }
    }
}

#[test]
fn every_nested_field_that_openai_publishes_is_known_or_refused_by_name() {
    let fake = Fake { calls: true, ..Fake::default() };
    let server = TestServer::with(fake, |config| config.strict_fields = true);
    // What is not known has no type, so that this value is refused wherever it is.
    let object = |fixed: Json, name: &str| {
        let mut object = fixed;
        object[name] = json!({"no": ["type"]});
        object
    };
    let mut walked = 0;
    for (of, place) in [
        ("stream_options", "stream_options"),
        ("message", "messages[0]"),
        ("text_part", "messages[0].content[0]"),
        ("function", "tools[0].function"),
        ("json_schema", "response_format.json_schema"),
    ] {
        for name in
            published(of).iter().filter(|name| !["parameters", "schema"].contains(&name.as_str()))
        {
            let more = match of {
                "stream_options" => {
                    json!({"stream": true, "stream_options": object(json!({}), name)})
                }
                "message" => {
                    let role = if name == "tool_call_id" { "tool" } else { "assistant" };
                    json!({"messages": [object(json!({"role": role, "content": "a"}), name)]})
                }
                "text_part" => {
                    let part = object(json!({"type": "text", "text": "a"}), name);
                    json!({"messages": [{"role": "user", "content": [part]}]})
                }
                "function" => {
                    let function = object(json!({"name": "f"}), name);
                    json!({"tools": [{"type": "function", "function": function}]})
                }
                _ => {
                    let format = object(json!({"schema": {}}), name);
                    json!({"response_format": {"type": "json_schema", "json_schema": format}})
                }
            };
            let answer = server.chat(more);
            assert_eq!(answer.status, 400, "{of}.{name}: {}", answer.text);
            assert_eq!(answer.error("param"), format!("{place}.{name}"));
            walked += 1;
        }
    }
    assert!(walked >= 16, "{walked}");
}

/// Sends each field of `fields` beside `base`, to a server and to a strict one.
pub fn walk(path: &str, base: &Json, fields: Vec<(&'static str, Json, Fate)>) {
    for is_strict in [false, true] {
        let fake = Fake { calls: true, ..Fake::default() };
        let server = TestServer::with(fake, |config| config.strict_fields = is_strict);
        walk_one(&server, is_strict, (path, base), &fields);
    }
}

fn walk_one(
    server: &TestServer,
    is_strict: bool,
    (path, base): (&str, &Json),
    fields: &[(&'static str, Json, Fate)],
) {
    let send = |field: &str, value: &Json| {
        let mut body = base.clone();
        merge(&mut body, json!({field: value}));
        server.post(path, &body)
    };
    let ignores = |answer: &Answer, field: &str| {
        let told = answer.header("x-ml-ignored").unwrap_or_default();
        told.split(", ").any(|name| name.starts_with(field))
    };
    for (field, value, fate) in fields {
        for (value, fate) in [(value, *fate), (&Json::Null, Ok)] {
            let answer = send(field, value);
            let is_needed = value.is_null() && base.get(*field).is_some();
            if fate == Refused || fate == Told && is_strict || is_needed {
                assert_eq!(answer.status, 400, "{field} = {value}: {}", answer.text);
                assert_eq!(&answer.error("param"), field);
            } else {
                assert_eq!(answer.status, 200, "{field} = {value}: {}", answer.text);
                assert!(ignores(&answer, field) || fate == Ok, "{field} = {value}");
            }
        }
        // Nothing has the type of all fields, so that each refuses one of these, or tells of it.
        let refuses = [json!([[]]), json!("\u{0}"), json!(1e300)].iter().any(|value| {
            let answer = send(field, value);
            let named = answer.status == 400 && answer.error("param").starts_with(field);
            named || ignores(&answer, field) || answer.status == 404 && *field == "model"
        });
        assert!(refuses, "{field} takes anything");
    }
    let answer = send("temprature", &json!(1));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "temprature"));
    assert_eq!(answer.error("code"), "unknown_parameter");
    // An empty value asks for nothing, whatever the field means.
    for value in [json!(""), json!([]), json!({})] {
        let answer = send("temprature", &value);
        assert_eq!(answer.status, if is_strict { 400 } else { 200 }, "{}", answer.text);
        assert_eq!(ignores(&answer, "temprature"), !is_strict);
    }
}

#[test]
fn every_field_of_a_chat_has_an_effect_or_is_refused_by_name() {
    let base = json!({"messages": [{"role": "user", "content": "hi"}]});
    walk("/v1/chat/completions", &base, chat_fields());
}

#[test]
fn every_field_of_a_completion_has_an_effect_or_is_refused_by_name() {
    walk("/v1/completions", &json!({"prompt": "hi"}), completion_fields());
}

#[test]
fn values_out_of_range_are_named() {
    let server = TestServer::with(Fake { calls: true, ..Fake::default() }, |_| {});
    let long: Vec<_> = (0..17).map(|i| i.to_string()).collect();
    let bias: serde_json::Map<_, _> = (0..1025).map(|i| (i.to_string(), json!(1))).collect();
    let wide = "x".repeat(300 << 10);
    for (more, param) in [
        (json!({"temperature": -1}), "temperature"),
        (json!({"temperature": 1e300}), "temperature"),
        (json!({"top_p": 1.5}), "top_p"),
        (json!({"top_p": -0.5}), "top_p"),
        (json!({"n": 0}), "n"),
        (json!({"n": 9}), "n"),
        (json!({"n": 1e30}), "n"),
        (json!({"max_tokens": -2}), "max_tokens"),
        (json!({"max_tokens": 1, "max_completion_tokens": 2}), "max_tokens"),
        (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs"),
        (json!({"stop": long}), "stop"),
        (json!({"stop": ""}), "stop"),
        (json!({"stop": [1]}), "stop[0]"),
        (json!({"stop_token_ids": [-1]}), "stop_token_ids[0]"),
        (json!({"logit_bias": bias}), "logit_bias"),
        (json!({"logit_bias": {"x": 1}}), "logit_bias"),
        (json!({"logit_bias": {"1": 101}}), "logit_bias.1"),
        (json!({"presence_penalty": 3}), "presence_penalty"),
        (json!({"repetition_penalty": 0}), "repetition_penalty"),
        (json!({"xtc_threshold": 0.1}), "xtc_threshold"),
        (json!({"regex": wide}), "regex"),
        (json!({"response_format": {"type": "yaml"}}), "response_format.type"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema"),
        (json!({"response_format": {"type": "text", "x": 1}}), "response_format.x"),
        (
            json!({"response_format": {"type": "json_schema",
                   "json_schema": {"schema": {"const": wide}}}}),
            "response_format.json_schema.schema",
        ),
        (json!({"stream": true, "stream_options": {"x": 1}}), "stream_options.x"),
        (json!({"chat_template_kwargs": {"messages": 1}}), "chat_template_kwargs.messages"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].function"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": [{"role": "user", "content": 1}]}), "messages[0].content"),
    ] {
        let answer = server.chat(more);
        assert_eq!(answer.status, 400, "{param}: {}", answer.text);
        assert_eq!(answer.error("param"), param);
    }
}
