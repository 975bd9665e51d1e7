//! Tools for models whose chat templates know none: instructions, a grammar, and plain turns.

use fake_model::FakeModel as Fake;
use inference_core::{Constraint, Message, Role};
use inference_server::Tools;
use serde_json::{Value as Json, json};

use crate::TestServer;
use crate::client::Answer;

const CALLS: &[&str] = &[
    "One moment.\n",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\"",
    ": 1}}\n</tool_call>",
    "\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
];

fn tools() -> Json {
    let schema = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
    let function = |name: &str, schema: &Json| json!({"type": "function", "function": {"name": name, "parameters": schema}});
    json!([function("f", &schema), function("g", &json!({"type": "object", "not": {"a": 1}}))])
}

fn server(fake: Fake) -> TestServer {
    TestServer::with(fake, |config| config.tools = Tools::Generic)
}

fn says(says: &[&'static str]) -> TestServer {
    server(Fake { says: says.to_vec(), ..Fake::default() })
}

fn ask(server: &TestServer, more: Json) -> Answer {
    let mut body = json!({"tools": tools()});
    crate::merge(&mut body, more);
    let answer = server.chat(body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer
}

/// The messages that the template was given last. It was given no tools.
fn rendered(server: &TestServer) -> Vec<Message> {
    let chats = server.model.chats.lock().unwrap();
    let (messages, options) = chats.last().unwrap();
    assert!(options.tools.is_empty());
    messages.clone()
}

fn text(message: &Message) -> &str {
    message.content.as_str().unwrap()
}

/// The grammar of the last answer.
fn grammar(server: &TestServer) -> Option<String> {
    let options = server.model.options.lock().unwrap().last().unwrap().clone();
    options.constraint.map(|constraint| match constraint {
        Constraint::Lark(grammar) => grammar,
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_request_with_tools_is_refused_by_a_message_that_names_the_option() {
    let answer = TestServer::start().chat(json!({"tools": tools()}));
    assert_eq!((answer.status, answer.error("param").as_str()), (400, "tools"));
    assert!(answer.error("message").contains("--tools generic"), "{}", answer.text);
}

#[test]
fn calls_are_told_in_all_protocols_whole_and_streamed() {
    let server = says(CALLS);
    let message = ask(&server, json!({})).json()["choices"][0]["message"].clone();
    assert_eq!(message["content"].as_str().map(str::trim), Some("One moment."));
    let calls: Vec<_> =
        message["tool_calls"].as_array().unwrap().iter().map(|call| &call["function"]).collect();
    let expected =
        [json!({"name": "f", "arguments": "{\"x\": 1}"}), json!({"name": "g", "arguments": "{}"})];
    assert_eq!(calls, expected.iter().collect::<Vec<_>>());
    let chunks = ask(&server, json!({"stream": true})).chunks();
    let names: Vec<_> = chunks
        .iter()
        .flat_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array().cloned())
        .flatten()
        .filter_map(|call| call["function"]["name"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(names, ["f", "g"]);

    let schema = json!({"type": "object"});
    let messages = json!([{"role": "user", "content": "hi"}]);
    let tool = json!({"name": "f", "input_schema": schema});
    let body = json!({"model": "fake", "max_tokens": 99, "messages": messages, "tools": [tool]});
    let anthropic = server.post("/v1/messages", &body).json();
    assert_eq!(anthropic["content"][1]["input"], json!({"x": 1}), "{anthropic}");
    let tool = json!({"type": "function", "name": "f", "parameters": schema});
    let responses = server.post("/v1/responses", &json!({"input": "hi", "tools": [tool]})).json();
    assert_eq!(responses["output"][1]["type"], "function_call", "{responses}");
    let body = json!({"model": "fake", "messages": messages, "tools": tools(), "stream": false});
    let ollama = server.post("/api/chat", &body).json();
    assert_eq!(ollama["message"]["tool_calls"][0]["function"]["name"], "f", "{ollama}");
    let tool = json!({"functionDeclarations": [{"name": "f"}]});
    let body = json!({"contents": {"parts": {"text": "hi"}}, "tools": tool});
    let google = server.post("/v1beta/models/fake:generateContent", &body).json();
    let part = &google["candidates"][0]["content"]["parts"][1];
    assert_eq!(part["functionCall"]["args"], json!({"x": 1}), "{google}");
}

#[test]
fn the_system_tells_of_the_tools_behind_its_own_instructions() {
    let server = says(&["a"]);
    ask(
        &server,
        json!({"messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
        ]}),
    );
    let messages = rendered(&server);
    assert_eq!(messages.len(), 2);
    assert!(text(&messages[0]).starts_with("be brief\n\nYou can call functions."));
    assert!(text(&messages[0]).contains("{\"name\":\"f\",\"parameters\":"), "{messages:?}");
    ask(&server, json!({}));
    assert_eq!(rendered(&server)[0].role, Role::System);
    // Nothing is told where nothing may be called.
    ask(&server, json!({"tool_choice": "none"}));
    assert_eq!(rendered(&server).len(), 1);
}

#[test]
fn a_template_without_a_system_has_the_user_tell_of_the_tools() {
    let server = server(Fake { strict: true, ..Fake::default() });
    ask(&server, json!({}));
    let messages = rendered(&server);
    assert_eq!((messages.len(), &messages[0].role), (1, &Role::User));
    assert!(text(&messages[0]).starts_with("You can call functions."));
    assert!(text(&messages[0]).ends_with("\n\nhi"));
}

#[test]
fn earlier_calls_and_their_results_are_plain_turns() {
    let server = says(&["a"]);
    let call = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{\"x\": 1}"}});
    ask(
        &server,
        json!({"messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "so", "tool_calls": [call("1", "f"), call("2", "g")]},
            {"role": "tool", "tool_call_id": "2", "content": "second"},
            {"role": "tool", "tool_call_id": "1", "content": "first"},
        ]}),
    );
    let messages = rendered(&server);
    let roles: Vec<_> = messages.iter().map(|message| message.role.clone()).collect();
    assert_eq!(roles, [Role::System, Role::User, Role::Assistant, Role::User]);
    let called = "so\n<tool_call>\n{\"name\":\"f\",\"arguments\":{\"x\":1}}\n</tool_call>";
    assert!(text(&messages[2]).starts_with(called), "{}", text(&messages[2]));
    assert!(messages[2].fields.iter().all(|(name, _)| name != "tool_calls"));
    let results = text(&messages[3]);
    let (first, second) = (results.find("first\n</tool_response>"), results.find("second\n"));
    assert!(first.is_some() && first < second, "{results}");
}

#[test]
fn a_grammar_holds_answers_to_text_or_calls() {
    let server = says(&["a"]);
    ask(&server, json!({}));
    let free = grammar(&server).unwrap();
    assert!(free.contains("TEXT") && free.contains("\"integer\""), "{free}");
    assert!(!free.contains("\"not\""), "a schema that cannot be held is an object: {free}");
    ask(&server, json!({"tool_choice": {"type": "function", "function": {"name": "f"}}}));
    let named = grammar(&server).unwrap();
    assert!(named.contains("\\\"f\\\"") && !named.contains("\\\"g\\\""), "{named}");
    ask(&server, json!({"tool_choice": "none"}));
    assert_eq!(grammar(&server), None);
    // A call too many is none.
    let message = ask(&says(CALLS), json!({"parallel_tool_calls": false})).json();
    assert_eq!(message["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 1);
    // Models whose templates know tools are given them by these.
    let known = self::server(Fake { calls: true, ..Fake::default() });
    ask(&known, json!({}));
    assert_eq!(known.model.chats.lock().unwrap().last().unwrap().1.tools.len(), 2);
    assert_eq!(grammar(&known), None);
}
