//! Tools for models whose chat templates know none.
//!
//! Instructions tell of the tools and of the one form of a call. Earlier calls are text of the
//! assistant, and their results come in turns of the user. All of it is written in the words that
//! [`FAMILY`] has in its own templates.

use inference_core::{Message, Role, Value};
use inference_text::answer::{Family, Tool};
use inference_text::json::from_value;
use serde_json::{Value as Json, json};

use super::content::{BETWEEN, Content};
use super::tools::arguments;
use crate::pool::loaded::ToolsIn;

/// The family in whose form calls are written.
pub const FAMILY: Family = Family::Hermes;

/// Keywords of schemas to which a call can be held whatever they say, with those that are notes.
const KEYWORDS: [&str; 17] = [
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "const",
    "anyOf",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "title",
    "description",
    "default",
    "examples",
];

/// `tools` as a grammar holds answers to them that may be calls: to a schema of [`KEYWORDS`], else
/// to an object.
pub fn held(tools: &[Tool]) -> Vec<Tool> {
    let held = |tool: &Tool| {
        let fits = tool.strict || is_object(&tool.parameters) && is_plain(&tool.parameters);
        let parameters = if fits { tool.parameters.clone() } else { json!({"type": "object"}) };
        Tool { name: tool.name.clone(), parameters, strict: true }
    };
    tools.iter().map(held).collect()
}

fn is_object(schema: &Json) -> bool {
    schema.get("type").is_none_or(|kind| kind == "object")
}

/// Returns true when `schema` has [`KEYWORDS`] alone, or says which other properties there are.
fn is_plain(schema: &Json) -> bool {
    let Json::Object(fields) = schema else { return false };
    fields.iter().all(|(name, value)| match (name.as_str(), value) {
        ("properties", Json::Object(inner)) => inner.values().all(is_plain),
        ("anyOf", Json::Array(inner)) => !inner.is_empty() && inner.iter().all(is_plain),
        ("enum", Json::Array(values)) => !values.is_empty(),
        ("items", inner) => is_plain(inner),
        ("additionalProperties", Json::Bool(_)) | ("$schema", Json::String(_)) => true,
        ("properties" | "anyOf" | "enum", _) => false,
        (name, _) => KEYWORDS.contains(&name),
    })
}

/// `messages` for a template that knows no tools: `tools`, calls and their results are text.
/// Answers may make several calls where `parallel`.
pub fn written(
    messages: Vec<Message>,
    tools: &[Value],
    place: ToolsIn,
    parallel: bool,
) -> Vec<Message> {
    let mut turns = plain(messages);
    if !tools.is_empty() {
        instruct(&mut turns, place, instructions(tools, parallel));
    }
    turns
}

fn instructions(tools: &[Value], parallel: bool) -> String {
    let definition = |tool: &Value| {
        let tool = from_value(tool);
        tool.get("function").unwrap_or(&tool).to_string()
    };
    let definitions: Vec<String> = tools.iter().map(definition).collect();
    let several = match parallel {
        true => "For several calls, write several such blocks.",
        false => "Make one call at a time.",
    };
    format!(
        "You can call functions. These are their definitions in JSON, one a line:\n{}\n\n\
         To call a function, end your answer with its name and its arguments in this form:\n\
         <tool_call>\n{{\"name\": \"NAME\", \"arguments\": {{}}}}\n</tool_call>\n{several} The \
         results come in the next message, between <tool_response> and </tool_response>. Where no \
         function helps, answer without a call.",
        definitions.join("\n")
    )
}

/// Puts `instructions` behind those of the system, or before what the user says first.
fn instruct(turns: &mut Vec<Message>, place: ToolsIn, instructions: String) {
    let role = match place {
        ToolsIn::System => Role::System,
        ToolsIn::User => Role::User,
    };
    let at = match place {
        ToolsIn::System => turns.first().filter(|first| first.role == role).map(|_| 0),
        ToolsIn::User => turns.iter().position(|turn| turn.role == role),
    };
    let Some(turn) = at.map(|at| &mut turns[at]) else {
        turns.insert(0, Message::new(role, instructions));
        return;
    };
    let said = Content::of_value(BETWEEN, &turn.content);
    let mut content = Content::new(BETWEEN);
    match place {
        ToolsIn::System => {
            content.append(said);
            content.text(&instructions);
        }
        ToolsIn::User => {
            content.text(&instructions);
            content.append(said);
        }
    }
    turn.content = content.into_value();
}

/// `messages` without calls and results but as text.
fn plain(messages: Vec<Message>) -> Vec<Message> {
    let mut turns: Vec<Message> = Vec::new();
    let mut called: Vec<String> = Vec::new();
    let mut messages = messages.into_iter().peekable();
    while let Some(mut message) = messages.next() {
        if message.role == Role::Tool {
            let mut results = vec![message];
            while let Some(next) = messages.next_if(|next| next.role == Role::Tool) {
                results.push(next);
            }
            turns.push(of_results(results, &called));
            continue;
        }
        let at = message.fields.iter().position(|(name, _)| name == "tool_calls");
        if let Some(at) = at {
            let (_, calls) = message.fields.remove(at);
            let calls = from_value(&calls);
            let calls = calls.as_array().map(Vec::as_slice).unwrap_or_default();
            called = calls.iter().map(|call| text_of(&call["id"])).collect();
            let written: Vec<String> = calls.iter().map(call_text).collect();
            let mut content = Content::new("\n");
            content.append(Content::of_value("\n", &message.content));
            content.text(&written.join("\n"));
            message.content = content.into_value();
        }
        turns.push(message);
    }
    turns
}

/// A call as text.
fn call_text(call: &Json) -> String {
    let function = &call["function"];
    let arguments = match &function["arguments"] {
        Json::String(text) => arguments(text.clone()),
        Json::Null => json!({}),
        object => object.clone(),
    };
    let call = json!({"name": function["name"], "arguments": arguments});
    format!("<tool_call>\n{call}\n</tool_call>")
}

/// A turn of the user that has `results`, in the order of the calls whose ids are `called`.
fn of_results(mut results: Vec<Message>, called: &[String]) -> Message {
    let field = |message: &Message, name: &str| {
        let found = message.fields.iter().find(|(own, _)| own == name);
        found.and_then(|(_, value)| value.as_str()).unwrap_or_default().to_owned()
    };
    results.sort_by_key(|result| {
        let id = field(result, "tool_call_id");
        called.iter().position(|call| *call == id).unwrap_or(usize::MAX)
    });
    let mut content = Content::new("\n");
    for result in results {
        let name = field(&result, "name");
        let of = if name.is_empty() { String::new() } else { format!("\n{name}:") };
        content.text(&format!("<tool_response>{of}"));
        let mut said = Content::new("");
        said.append(Content::of_value("", &result.content));
        said.text("\n</tool_response>");
        content.append(said);
    }
    Message::new(Role::User, content.into_value())
}

fn text_of(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use inference_text::answer::Tool;
    use serde_json::{Value as Json, json};

    use super::held;

    #[test]
    fn schemas_that_a_grammar_may_not_hold_become_objects() {
        let plain = json!({"type": "object", "additionalProperties": false, "properties": {
            "a": {"anyOf": [{"type": "array", "items": {"enum": [1]}}, {"type": "null"}]},
        }});
        let held_to = |parameters: Json, strict: bool| {
            let tool = Tool { name: "f".to_owned(), parameters, strict };
            held(&[tool])[0].parameters.clone()
        };
        assert_eq!(held_to(plain.clone(), false), plain);
        let any = json!({"type": "object"});
        for other in [
            json!({"not": {}}),
            json!({"type": "string"}),
            json!({"properties": {"a": {"pattern": "(a+)+"}}}),
            json!({"properties": {"a": {"anyOf": []}}}),
            json!({"properties": {"a": {"items": [true]}}}),
            json!({"properties": 1}),
        ] {
            assert_eq!(held_to(other.clone(), false), any, "{other}");
            assert_eq!(held_to(other.clone(), true), other, "strict tools are held or refused");
        }
    }
}
