//! Tool calls and reasoning, of a model whose template writes them as Hermes does.

use inference_core::{Constraint, Feature};
use serde_json::{Value as Json, json};

use crate::TestServer;
use fake_model::{FakeModel as Fake, all_but};

const CALL: &[&str] = &[
    "<think>",
    "hm",
    "</think>\n\n",
    "One moment.",
    "<tool",
    "_call>\n{\"name\": \"f\", ",
    "\"arguments\": {\"x\"",
    ": 1}}\n</tool_call>",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
    "after",
];

fn tool() -> Json {
    json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}})
}

fn server(says: &[&'static str]) -> TestServer {
    TestServer::with(Fake { calls: true, says: says.to_vec(), ..Fake::default() }, |_| {})
}

#[test]
fn tools_reach_the_template_unless_the_choice_is_none() {
    let server = server(&["a"]);
    let tools = |choice: &str| {
        let answer = server.chat(json!({"tools": [tool()], "tool_choice": choice}));
        assert_eq!(answer.status, 200, "{}", answer.text);
        server.model.chats.lock().unwrap().last().unwrap().1.tools.len()
    };
    assert_eq!((tools("auto"), tools("none")), (1, 0));
    for (choice, param) in [
        (json!("sometimes"), "tool_choice"),
        (json!({"type": "function", "function": {"name": "g"}}), "tool_choice"),
        (json!({"type": "function"}), "tool_choice.function"),
    ] {
        let answer = server.chat(json!({"tools": [tool()], "tool_choice": choice}));
        assert_eq!((answer.status, answer.error("param").as_str()), (400, param));
    }
    let answer = server.chat(json!({"tool_choice": "required"}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "tool_choice"));
}

#[test]
fn calls_and_thoughts_are_told_apart_whole_and_in_a_stream() {
    let server = server(CALL);
    let whole = server.chat(json!({"tools": [tool()]})).json();
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    let message = &choice["message"];
    assert_eq!(message["reasoning_content"].as_str().map(str::trim), Some("hm"));
    assert!(message["content"].as_str().unwrap().starts_with("One moment."), "{message}");
    let calls = message["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    let arguments: Json =
        serde_json::from_str(calls[0]["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"x": 1}));

    let mut joined = json!({"content": "", "reasoning_content": ""});
    let mut streamed: Vec<(Json, String)> = Vec::new();
    let chunks = server.chat(json!({"tools": [tool()], "stream": true})).chunks();
    for chunk in &chunks {
        let delta = &chunk["choices"][0]["delta"];
        for name in ["content", "reasoning_content"] {
            let text = delta[name].as_str().unwrap_or_default();
            joined[name] = json!(format!("{}{text}", joined[name].as_str().unwrap()));
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            if index == streamed.len() {
                assert!(call["id"].is_string() && call["type"] == "function");
                streamed.push((call["function"]["name"].clone(), String::new()));
            }
            streamed[index].1 += call["function"]["arguments"].as_str().unwrap();
        }
    }
    assert_eq!(joined["content"], message["content"]);
    assert_eq!(joined["reasoning_content"], message["reasoning_content"]);
    let expected: Vec<_> = calls
        .iter()
        .map(|call| {
            let function = &call["function"];
            (function["name"].clone(), function["arguments"].as_str().unwrap().to_owned())
        })
        .collect();
    assert_eq!(streamed, expected);
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn without_parallel_calls_the_answer_ends_after_one() {
    let server = server(CALL);
    let more = json!({"tools": [tool()], "parallel_tool_calls": false});
    let json = server.chat(more).json();
    assert_eq!(json["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 1);
    assert_eq!(json["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn a_required_call_and_a_strict_tool_are_constraints() {
    let server = server(&["a"]);
    let arrived = |more: Json| {
        let answer = server.chat(more);
        assert_eq!(answer.status, 200, "{}", answer.text);
        server.model.options.lock().unwrap().last().unwrap().constraint.clone()
    };
    let named = json!({"type": "function", "function": {"name": "f"}});
    for choice in [json!("required"), named] {
        let constraint = arrived(json!({"tools": [tool()], "tool_choice": choice}));
        assert!(matches!(constraint, Some(Constraint::Lark(_))), "{constraint:?}");
    }
    assert_eq!(arrived(json!({"tools": [tool()]})), None);
    let strict_tool = || {
        let mut strict = tool();
        strict["function"]["strict"] = json!(true);
        strict
    };
    assert!(arrived(json!({"tools": [strict_tool()]})).is_some());
    assert!(server.model.options.lock().unwrap()[0].special_tokens, "marks must be seen");

    // An answer of a format may be a call in its place, of a strict tool or of another.
    for tool in [tool(), strict_tool()] {
        let format = json!({"type": "json_object"});
        let either = arrived(json!({"tools": [tool], "response_format": format}));
        let Some(Constraint::Lark(grammar)) = either else { panic!("{either:?}") };
        assert!(grammar.contains("\nanswer: ") && grammar.contains("\ncalls: "), "{grammar}");
    }
    // One that must be calls has no text that could have a format.
    let required = json!({"tools": [tool()], "tool_choice": "required"});
    let mut both = required.clone();
    both["response_format"] = json!({"type": "json_object"});
    assert_eq!(arrived(both), arrived(required));
}

#[test]
fn a_call_cannot_be_forced_whose_arguments_are_no_object() {
    let server = server(&["a"]);
    let with = |name: &str, parameters: Json, strict: bool| {
        json!({"type": "function",
               "function": {"name": name, "parameters": parameters, "strict": strict}})
    };
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let of = |choice: &Json, schema: &Json, strict: bool| {
        let tools = json!([tool(), with("g", schema.clone(), strict)]);
        server.chat(json!({"tools": tools, "tool_choice": choice}))
    };
    for schema in [json!({"type": "string"}), json!({"type": ["array", "null"]})] {
        for (choice, strict) in
            [(json!("required"), false), (named("g"), false), (json!("auto"), true)]
        {
            let answer = of(&choice, &schema, strict);
            let found = (answer.status, answer.error("code"), answer.error("param"));
            let param = "tools[1].function.parameters".to_owned();
            assert_eq!(found, (400, "invalid_value".to_owned(), param), "{choice} {schema}");
        }
        // Nothing is held to it.
        assert_eq!(of(&json!("auto"), &schema, false).status, 200);
        assert_eq!(of(&named("f"), &schema, false).status, 200);
    }
    let objects =
        [json!({}), json!({"type": ["null", "object"]}), json!({"properties": {"x": {}}})];
    for schema in objects {
        assert_eq!(of(&named("g"), &schema, false).status, 200, "{schema}");
        let constraint = server.model.options.lock().unwrap().last().unwrap().constraint.clone();
        let Some(Constraint::Lark(grammar)) = constraint else { panic!("a grammar") };
        assert!(grammar.contains("\"type\":\"object\""), "{grammar}");
    }
}

#[test]
fn what_the_model_cannot_hold_to_is_named() {
    let fake =
        Fake { calls: true, capabilities: all_but(&[Feature::Constraint]), ..Fake::default() };
    let server = TestServer::with(fake, |_| {});
    let answer = server.chat(json!({"tools": [tool()], "tool_choice": "required"}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "tool_choice"));
    assert_eq!(server.chat(json!({"tools": [tool()]})).status, 200);

    let plain = TestServer::start();
    let answer = plain.chat(json!({"tools": [tool()]}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "tools"));
    assert_eq!(plain.chat(json!({"tools": [tool()], "tool_choice": "none"})).status, 200);
}
