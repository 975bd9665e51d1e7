//! OpenAI's messages and tools as the contract's.

use inference_core::{EncodedPicture, Message, Role, Value};
use inference_text::answer::Tool;
use inference_text::json::to_value;
use serde_json::{Map, Value as Json, json};

use crate::error::{ApiError, Result};
use crate::fields::bounds::check_tools;
use crate::fields::reader::{Reader, expected};
use crate::fields::told::is_empty;
use crate::protocol::content::Content;
use crate::protocol::conversation::arguments_schema;
use crate::protocol::hosted::leave_out;
use crate::protocol::pictures::Pictures;
use crate::protocol::tools::{arguments, tool_name};
use crate::protocol::turns::Called;

/// Refused fields of a message, with the remedy.
const REFUSED: [(&str, &str); 3] = [
    ("audio", "answers are text; send what was said as the message's text"),
    ("function_call", "it is OpenAI's older form; use `tool_calls`"),
    ("refusal", "models here do not refuse apart from their text; put it into `content`"),
];

/// Fields that clients keep beside a message, or that other servers put into their answers.
const HINTS: [&str; 14] = [
    "annotations",
    "cache_control",
    "created_at",
    "extra_content",
    "finish_reason",
    "id",
    "metadata",
    "model",
    "provider_specific_fields",
    "reasoning_details",
    "status",
    "thinking_blocks",
    "timestamp",
    "weight",
];
/// Why they are.
const OF_CLIENTS: &str = "the client notes it for itself, and templates have no place for it";

/// The conversation of the field `messages`.
///
/// # Errors
/// A malformed message, named by its path.
pub fn messages(items: Vec<Json>, pictures: &Pictures<'_>) -> Result<Vec<Message>> {
    if items.is_empty() {
        return Err(ApiError::value("messages", "is empty"));
    }
    let one = |(index, item)| message(Reader::new(format!("messages[{index}]"), item)?, pictures);
    let messages = items.into_iter().enumerate().map(one).collect::<Result<Vec<_>>>()?;
    check_results(&messages)?;
    Ok(messages)
}

/// Checks that each result belongs to a call, which has no other one.
fn check_results(messages: &[Message]) -> Result<()> {
    let mut called = Called::default();
    for (index, message) in messages.iter().enumerate() {
        for (name, value) in &message.fields {
            if let ("tool_calls", Value::Array(calls)) = (name.as_str(), value) {
                for call in calls {
                    let text = |value: Option<&Value>| {
                        value.and_then(Value::as_str).unwrap_or_default().to_owned()
                    };
                    let function = call.get("function").and_then(|function| function.get("name"));
                    called.add(&text(call.get("id")), &text(function));
                }
            }
            if let ("tool_call_id", Some(id)) = (name.as_str(), value.as_str()) {
                called.answer(id).map_err(|none| {
                    let field = format!("messages[{index}].tool_call_id");
                    ApiError::value(field, none.reason("call", id))
                })?;
            }
        }
    }
    Ok(())
}

fn message(mut reader: Reader, pictures: &Pictures<'_>) -> Result<Message> {
    let role = reader.text("role")?;
    let role = match reader.need("role", role)?.as_str() {
        // Templates know one role for instructions, and `system` is its name.
        "system" | "developer" => Role::System,
        name @ ("user" | "assistant" | "tool") => Role::from(name),
        other => {
            let known = "system, developer, user, assistant, tool";
            let reason = format!("`{other}` is not one of {known}");
            return Err(ApiError::value(reader.path("role"), reason));
        }
    };
    let mut fields = Vec::new();
    for name in ["name", "tool_call_id", "reasoning_content"] {
        if let Some(text) = reader.text(name)? {
            belongs(&reader, name, &role)?;
            fields.push((name.to_owned(), Value::from(text)));
        }
    }
    if role == Role::Tool && !fields.iter().any(|(name, _)| name == "tool_call_id") {
        return Err(ApiError::value(reader.path("tool_call_id"), "is missing"));
    }
    // Another name of it, which vLLM and OpenRouter have.
    if let Some(text) = reader.text("reasoning")? {
        belongs(&reader, "reasoning", &role)?;
        let text = Value::from(text);
        match fields.iter().find(|(name, _)| name == "reasoning_content") {
            Some((_, other)) if *other != text => {
                let reason = "differs from `reasoning_content`, which is another name of it";
                return Err(ApiError::value(reader.path("reasoning"), reason));
            }
            Some(_) => {}
            None => fields.push(("reasoning_content".to_owned(), text)),
        }
    }
    if !fields.iter().any(|(name, _)| name == "reasoning_content") && role == Role::Assistant {
        let thoughts = thoughts(&mut reader);
        fields.extend(thoughts.map(|text| ("reasoning_content".to_owned(), Value::from(text))));
    }
    let path = reader.path("tool_calls");
    if let Some(calls) = reader.list("tool_calls")?.filter(|calls| !calls.is_empty()) {
        let one = |(index, item)| tool_call(Reader::new(format!("{path}[{index}]"), item)?);
        belongs(&reader, "tool_calls", &role)?;
        let calls = calls.into_iter().enumerate().map(one).collect::<Result<_>>()?;
        fields.push(("tool_calls".to_owned(), Value::Array(calls)));
    }
    let path = reader.path("content");
    let content = match reader.take("content") {
        // It has called tools.
        None if fields.iter().any(|(name, _)| name == "tool_calls") => Value::Null,
        // It has only thought, and templates add to the text.
        None if fields.iter().any(|(name, _)| name == "reasoning_content") => Value::from(""),
        None => return Err(ApiError::value(path, "is missing")),
        Some(Json::String(text)) => Value::from(text),
        Some(Json::Array(items)) => parts(&path, items, &role, pictures)?,
        Some(other) => return Err(expected(path, "a string or an array of parts", &other)),
    };
    for (name, reason) in REFUSED {
        if reader.take(name).is_some_and(|value| !is_empty(&value)) {
            return Err(ApiError::unsupported(reader.path(name), reason));
        }
    }
    reader.hints(&HINTS, OF_CLIENTS)?;
    reader.finish()?;
    Ok(Message { role, content, fields })
}

/// The thoughts that OpenRouter's and LiteLLM's clients send back in a form of their own.
fn thoughts(reader: &mut Reader) -> Option<String> {
    let of = |list: Json, key: &str| -> String {
        let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().filter_map(|item| item.get(key).and_then(Json::as_str)).collect()
    };
    let details = reader.copy("reasoning_details");
    let blocks = reader.copy("thinking_blocks");
    [of(details, "text"), of(blocks, "thinking")].into_iter().find(|text| !text.is_empty())
}

/// Checks that messages of `role` have the field `name`; templates would pass over it elsewhere.
fn belongs(reader: &Reader, name: &str, role: &Role) -> Result<()> {
    let own = match name {
        "tool_calls" | "reasoning_content" | "reasoning" => Role::Assistant,
        "tool_call_id" => Role::Tool,
        _ => return Ok(()),
    };
    if *role == own {
        return Ok(());
    }
    let reason = format!("belongs to messages of the role `{own}`, and this one's is `{role}`");
    Err(ApiError::value(reader.path(name), reason))
}

/// The parts of a message of `role`. Texts alone are one text, since templates take a
/// message's text in one piece.
fn parts(path: &str, items: Vec<Json>, role: &Role, pictures: &Pictures<'_>) -> Result<Value> {
    let mut content = Content::new("");
    for (index, part) in items.into_iter().enumerate() {
        let mut part = Reader::new(format!("{path}[{index}]"), part)?;
        let kind = part.text("type")?;
        match part.need("type", kind)?.as_str() {
            "text" => {
                let text = part.text("text")?;
                content.text(&part.need("text", text)?);
            }
            "image_url" => {
                pictures.check_sees(part.own_path())?;
                if !matches!(role, Role::User | Role::Tool) {
                    let reason = format!("pictures belong to `user` and `tool`, not to `{role}`");
                    return Err(ApiError::value(part.path("type"), reason));
                }
                content.picture(image_url(&mut part, pictures)?);
            }
            "input_audio" => {
                if *role != Role::User {
                    let reason = format!("sounds belong to `user`, not to `{role}`");
                    return Err(ApiError::value(part.path("type"), reason));
                }
                content.sound(pictures.sounds().of_openai(&mut part)?);
            }
            "file" => {
                let reason =
                    "this server takes text, pictures (`image_url`) and sounds (`input_audio`)";
                return Err(ApiError::unsupported(part.path("type"), reason));
            }
            other => {
                let reason = format!("`{other}` is no kind of part that is known");
                return Err(ApiError::value(part.path("type"), reason));
            }
        }
        part.hints(&["cache_control", "id", "index", "annotations"], OF_CLIENTS)?;
        part.finish()?;
    }
    Ok(content.into_value())
}

/// The picture of a part.
fn image_url(part: &mut Reader, pictures: &Pictures<'_>) -> Result<EncodedPicture> {
    let object = part.take("image_url");
    let mut object = Reader::new(part.path("image_url"), part.need("image_url", object)?)?;
    let url = object.text("url")?;
    let url = object.need("url", url)?;
    pictures.check_detail(&object.path("detail"), object.text("detail")?.as_deref())?;
    let field = object.path("url");
    object.finish()?;
    pictures.of_url(part.own_path(), &field, &url)
}

/// A call of an earlier answer. Its arguments, JSON in a string, become the value that templates
/// print; where a model wrote no JSON, they stay what it wrote.
fn tool_call(mut call: Reader) -> Result<Value> {
    let mut fields = Vec::new();
    let id = call.text("id")?;
    fields.push(("id".to_owned(), Value::from(call.need("id", id)?)));
    let kind = call.text("type")?.unwrap_or_else(|| "function".to_owned());
    if kind != "function" {
        return Err(ApiError::unsupported(call.path("type"), "calls are of functions"));
    }
    // A client that collected a stream may send the chunks' position back.
    call.count("index")?;
    call.hints(&["extra_content", "provider_specific_fields", "cache_control"], OF_CLIENTS)?;
    let function = call.take("function");
    let function = call.need("function", function)?;
    let mut function = Reader::new(call.path("function"), function)?;
    call.finish()?;
    let name = function.text("name")?;
    let name = function.need("name", name)?;
    let arguments = match function.take("arguments") {
        None => Json::Object(Map::new()),
        Some(Json::String(text)) => arguments(text),
        Some(arguments @ Json::Object(_)) => arguments,
        Some(other) => {
            return Err(expected(function.path("arguments"), "JSON in a string", &other));
        }
    };
    function.finish()?;
    let function =
        vec![("name".to_owned(), Value::from(name)), ("arguments".to_owned(), to_value(arguments))];
    fields.push(("type".to_owned(), Value::from("function")));
    fields.push(("function".to_owned(), Value::Object(function)));
    Ok(Value::Object(fields))
}

/// The tools of a request.
#[derive(Debug, Default)]
pub struct Tools {
    /// Their definitions, as templates take them.
    pub definitions: Vec<Value>,
    /// The tools to which answers are held and with which they are read, in the same order.
    pub callable: Vec<Tool>,
}

/// A tool's definition as templates write it out: without fields that are null, and without those
/// that change nothing. Schemas stay as they are.
fn told(mut tool: Json) -> Json {
    let keep = |fields: &mut Map<String, Json>, names: &[&str]| {
        fields.retain(|name, value| names.contains(&name.as_str()) && !value.is_null());
    };
    if let Some(fields) = tool.as_object_mut() {
        keep(fields, &["type", "function"]);
    }
    if let Some(fields) = tool.get_mut("function").and_then(Json::as_object_mut) {
        keep(fields, &["name", "description", "parameters", "strict"]);
    }
    tool
}

/// The tools of the field `tools`.
///
/// # Errors
/// A malformed tool, named by its path.
pub fn tools(items: Vec<Json>) -> Result<Tools> {
    check_tools("tools", items.len())?;
    let mut tools = Tools::default();
    for (index, item) in items.into_iter().enumerate() {
        let definition = told(item.clone());
        let mut tool = Reader::new(format!("tools[{index}]"), item)?;
        let kind = tool.text("type")?;
        let kind = tool.need("type", kind)?;
        if leave_out(&tool, &kind)? {
            continue;
        }
        if kind != "function" {
            return Err(ApiError::unsupported(tool.path("type"), "tools are functions"));
        }
        let function = tool.take("function");
        let function = tool.need("function", function)?;
        let mut function = Reader::new(tool.path("function"), function)?;
        tool.hints(&["cache_control"], OF_CLIENTS)?;
        tool.finish()?;
        let name = tool_name(&mut function, 64)?;
        if tools.callable.iter().any(|tool| tool.name == name) {
            let reason = format!("`{name}` is the name of an earlier tool");
            return Err(ApiError::value(function.path("name"), reason));
        }
        let strict = function.bool("strict")?.unwrap_or(false);
        function.text("description")?;
        // A function without parameters takes none.
        let parameters = function.object("parameters")?;
        let parameters = parameters.map_or_else(|| json!({"type": "object"}), arguments_schema);
        function.finish()?;
        tools.callable.push(Tool { name, parameters, strict });
        tools.definitions.push(to_value(definition));
    }
    Ok(tools)
}

#[cfg(test)]
mod tests {
    use inference_core::{Role, Value};
    use serde_json::{Value as Json, json};

    use super::tools;
    use crate::protocol::pictures::Pictures;
    use fake_model::{FakeModel, all_but};
    use inference_core::{Feature, Message};

    fn messages(items: Vec<Json>) -> super::Result<Vec<Message>> {
        let blind = FakeModel { capabilities: all_but(&[Feature::Images]), ..FakeModel::default() };
        super::messages(items, &Pictures::new(&blind, None))
    }

    fn refused(message: Json) -> String {
        let first = json!({"role": "user", "content": "a"});
        messages(vec![first, message]).unwrap_err().param.unwrap_or_default()
    }

    #[test]
    fn parts_of_text_become_one_text() {
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let read = messages(vec![json!({"role": "developer", "content": parts})]).unwrap();
        assert_eq!((&read[0].role, &read[0].content), (&Role::System, &Value::from("ab")));
    }

    #[test]
    fn arguments_of_calls_become_values() {
        let call = |arguments: &str| {
            let function = json!({"name": "f", "arguments": arguments});
            let calls = json!([{"id": "1", "type": "function", "function": function}]);
            let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
            let read = messages(vec![message]).unwrap();
            let Value::Array(calls) = read[0].fields[0].1.clone() else { panic!("calls") };
            calls[0].get("function").and_then(|f| f.get("arguments")).cloned().unwrap()
        };
        assert_eq!(call("{\"x\":1}"), Value::Object(vec![("x".into(), Value::Int(1))]));
        assert_eq!(call("{x"), Value::from("{x"));
        assert_eq!(call(""), Value::Object(Vec::new()));
    }

    #[test]
    fn what_cannot_be_honoured_is_named_with_its_message() {
        assert_eq!(refused(json!({"role": "user"})), "messages[1].content");
        assert_eq!(refused(json!({"role": "root", "content": ""})), "messages[1].role");
        assert_eq!(refused(json!({"role": "user", "content": "", "x": 1})), "messages[1].x");
        let image = json!([{"type": "image_url", "image_url": {"url": "data:,"}}]);
        assert_eq!(
            refused(json!({"role": "user", "content": image})),
            "messages[1].content[0].type"
        );
        let spoken = json!({"role": "assistant", "content": "", "audio": {"id": "1"}});
        assert_eq!(refused(spoken), "messages[1].audio");
        let spoken = json!({"role": "assistant", "content": "", "refusal": "no"});
        assert_eq!(refused(spoken), "messages[1].refusal");
        let noted = json!({"role": "assistant", "content": "", "annotations": [{"type": "url_citation"}],
            "id": "1", "reasoning_details": [{}], "refusal": "", "x": []});
        assert!(messages(vec![noted]).is_ok());
        let thought = json!({"role": "assistant", "content": "", "reasoning": "hm"});
        let read = messages(vec![thought]).unwrap();
        assert_eq!(read[0].fields, [("reasoning_content".to_owned(), Value::from("hm"))]);
        let thought = json!({"role": "user", "content": "", "reasoning": "hm"});
        assert_eq!(refused(thought), "messages[1].reasoning");
    }

    #[test]
    fn tools_are_checked_and_keep_their_definitions() {
        let tool = json!({"type": "function", "function": {"name": "f", "strict": true}});
        let read = tools(vec![tool.clone()]).unwrap();
        let mut with_nulls = tool.clone();
        with_nulls["function"]["description"] = Json::Null;
        assert_eq!(tools(vec![with_nulls]).unwrap().definitions, read.definitions);
        assert_eq!((read.callable[0].name.as_str(), read.callable[0].strict), ("f", true));
        assert_eq!(read.definitions, [super::to_value(tool.clone())]);
        assert!(tools(vec![tool.clone(), tool.clone()]).is_err());
        assert!(tools(vec![json!({"type": "function", "function": {"name": "a b"}})]).is_err());
        assert!(tools(vec![json!({"type": "custom"})]).is_err());
        let hosted = tools(vec![json!({"type": "web_search"}), tool]).unwrap();
        assert_eq!((hosted.callable.len(), hosted.definitions.len()), (1, 1));
    }
}
