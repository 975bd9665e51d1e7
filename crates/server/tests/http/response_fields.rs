//! Nothing is ignored: every field of OpenAI's requests for responses has an effect, or is refused
//! by name.

use fake_model::FakeModel as Fake;
use serde_json::{Value as Json, json};

use crate::TestServer;
use crate::fields::Fate::{self, Ok, Refused, Told};
use crate::fields::{published, walk};

const PATH: &str = "/v1/responses";

/// Each field with a value that asks for something, and one that asks for nothing.
fn fields() -> Vec<(&'static str, Json, Fate)> {
    vec![
        ("model", json!("fake"), Ok),
        ("access_programs", json!({"cyber": "standard"}), Refused),
        ("background", json!(true), Refused),
        ("background", json!(false), Ok),
        ("background_options", json!({"completion_window": "2h"}), Told),
        ("client_metadata", json!({"a": "b"}), Ok),
        ("context_management", json!([{"type": "compaction"}]), Refused),
        ("context_management", json!([]), Ok),
        ("conversation", json!("conv_1"), Refused),
        ("image", json!({"context_compression": "auto"}), Refused),
        ("include", json!(["message.output_text.logprobs"]), Ok),
        ("include", json!(["reasoning.encrypted_content"]), Ok),
        ("input", json!("hi"), Ok),
        ("input", json!([{"role": "user", "content": "hi"}]), Ok),
        ("instructions", json!("Be kind."), Ok),
        ("max_output_tokens", json!(5), Ok),
        ("max_output_tokens", json!(0), Refused),
        ("max_tool_calls", json!(1), Ok),
        ("metadata", json!({"a": "b"}), Ok),
        ("metadata", json!([]), Refused),
        ("moderation", json!({"model": "m"}), Refused),
        ("parallel_tool_calls", json!(false), Ok),
        ("previous_response_id", json!("resp_1"), Refused),
        ("prompt", json!({"id": "p"}), Refused),
        ("prompt_cache_key", json!("a"), Ok),
        ("prompt_cache_options", json!({"mode": "implicit"}), Told),
        ("prompt_cache_retention", json!("24h"), Told),
        ("prompt_cache_retention", json!("in_memory"), Ok),
        ("reasoning", json!({"effort": "none"}), Ok),
        ("safety_identifier", json!("a"), Ok),
        ("service_tier", json!("flex"), Told),
        ("service_tier", json!("auto"), Ok),
        ("store", json!(true), Ok),
        ("store", json!(false), Ok),
        ("stream", json!(true), Ok),
        ("stream_options", json!({"include_obfuscation": false}), Told),
        ("temperature", json!(0.5), Ok),
        ("text", json!({"format": {"type": "json_object"}}), Ok),
        ("tool_choice", json!("auto"), Ok),
        ("tools", json!([{"type": "function", "name": "f"}]), Ok),
        ("top_logprobs", json!(1), Refused),
        ("top_logprobs", json!(0), Ok),
        ("top_p", json!(0.5), Ok),
        ("truncation", json!("auto"), Told),
        ("truncation", json!("disabled"), Ok),
        ("user", json!("a"), Ok),
    ]
}

fn count_fields() -> Vec<(&'static str, Json, Fate)> {
    let names = published("response_count");
    let own = fields().into_iter().filter(|(name, ..)| names.iter().any(|known| known == name));
    own.chain([("personality", json!("friendly"), Refused)]).collect()
}

#[test]
fn the_fields_that_are_walked_are_those_that_openai_publishes() {
    for (of, fields) in [("response", fields()), ("response_count", count_fields())] {
        for name in published(of) {
            assert!(fields.iter().any(|(field, ..)| *field == name), "{of}: `{name}`");
        }
    }
}

#[test]
fn every_field_of_a_response_has_an_effect_or_is_refused_by_name() {
    walk(PATH, &json!({"input": "hi"}), fields());
    walk("/v1/responses/input_tokens", &json!({"input": "hi"}), count_fields());
}

/// The request in which `place` is an object that has `name` with a value of no type that is taken.
fn with(of: &str, name: &str) -> (Json, &'static str) {
    let object = |mut fixed: Json| {
        // A number is neither text, nor a list, nor an object, nor a flag.
        fixed[name] = json!(1.5);
        fixed
    };
    let user = json!({"role": "user", "content": "a"});
    let called = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    let custom = json!({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "a"});
    let input = |items: Json| json!({"input": items});
    match of {
        "response_reasoning" => (json!({"reasoning": object(json!({}))}), "reasoning"),
        "response_text" => (json!({"text": object(json!({}))}), "text"),
        "response_format" => {
            let format = object(json!({"type": "json_schema", "schema": {}}));
            (json!({"text": {"format": format}}), "text.format")
        }
        "response_stream_options" => {
            (json!({"stream": true, "stream_options": object(json!({}))}), "stream_options")
        }
        "response_function" => {
            (json!({"tools": [object(json!({"type": "function", "name": "f"}))]}), "tools[0]")
        }
        "response_custom" => {
            (json!({"tools": [object(json!({"type": "custom", "name": "f"}))]}), "tools[0]")
        }
        "response_namespace" => {
            let space = json!({"type": "namespace", "name": "n", "tools": []});
            (json!({"tools": [object(space)]}), "tools[0]")
        }
        "response_allowed_tools" => {
            let choice = json!({"type": "allowed_tools", "mode": "auto", "tools": []});
            (json!({"tool_choice": object(choice)}), "tool_choice")
        }
        "response_message" => {
            let message = json!({"type": "message", "role": "assistant", "content": "a"});
            (input(json!([object(message)])), "input[0]")
        }
        "response_input_text" => {
            let part = object(json!({"type": "input_text", "text": "a"}));
            (input(json!([{"role": "user", "content": [part]}])), "input[0].content[0]")
        }
        "response_output_text" => {
            let part = object(json!({"type": "output_text", "text": "a"}));
            (input(json!([{"role": "assistant", "content": [part]}])), "input[0].content[0]")
        }
        "response_function_call" => (input(json!([object(called)])), "input[0]"),
        "response_custom_call" => (input(json!([object(custom)])), "input[0]"),
        "response_function_output" => {
            let output = json!({"type": "function_call_output", "call_id": "c", "output": "a"});
            (input(json!([user, called, object(output)])), "input[2]")
        }
        "response_custom_output" => {
            let output = json!({"type": "custom_tool_call_output", "call_id": "c", "output": "a"});
            (input(json!([user, custom, object(output)])), "input[2]")
        }
        _ => {
            let thoughts = json!({"type": "reasoning", "id": "r", "summary": []});
            (input(json!([object(thoughts)])), "input[0]")
        }
    }
}

#[test]
fn every_nested_field_that_openai_publishes_is_known() {
    let fake = Fake { calls: true, ..Fake::default() };
    let server = TestServer::with(fake, |config| config.strict_fields = true);
    let mut walked = 0;
    for of in [
        "response_reasoning",
        "response_text",
        "response_format",
        "response_stream_options",
        "response_function",
        "response_custom",
        "response_namespace",
        "response_allowed_tools",
        "response_message",
        "response_input_text",
        "response_output_text",
        "response_function_call",
        "response_custom_call",
        "response_function_output",
        "response_custom_output",
        "response_thoughts",
    ] {
        for name in published(of) {
            let (mut body, place) = with(of, &name);
            if body.get("input").is_none() {
                body["input"] = json!("hi");
            }
            let answer = server.post(PATH, &body);
            assert_eq!(answer.status, 400, "{of}.{name}: {}", answer.text);
            assert_eq!(answer.error("param"), format!("{place}.{name}"));
            assert_ne!(answer.error("code"), "unknown_parameter", "{of}.{name}");
            walked += 1;
        }
    }
    assert!(walked > 70, "{walked}");
}
