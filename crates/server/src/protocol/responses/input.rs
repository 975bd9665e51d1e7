//! `input` and what it goes on from: items as the contract's messages, and as they are kept.

use std::sync::Arc;

use inference_core::{Message, Role};
use inference_text::json::to_value;
use serde_json::{Value as Json, json};

use super::parts::{content, texts_of};
use super::store::{Item, Store};
use super::tools::{INPUT, full_name};
use crate::error::{ApiError, Result};
use crate::fields::bounds::check_repeated;
use crate::fields::reader::{Reader, expected};
use crate::protocol::pictures::Pictures;
use crate::protocol::tools::arguments;
use crate::protocol::turns::Turns;

/// The prefix of thoughts in `encrypted_content`. They are not encrypted, and this tells them from
/// those of servers that do.
pub const OPEN_THOUGHTS: &str = "open:";

/// The conversation of a request.
#[derive(Debug, Default)]
pub struct Input {
    /// As the model's template takes it.
    pub messages: Vec<Message>,
    /// As it is kept: each item has a type and an id.
    pub items: Vec<Arc<Item>>,
}

/// The conversation that begins with `instructions`, goes on with the items `before`, and ends with
/// `given`. Items that have no id get one of `new_id`.
///
/// # Errors
/// A malformed item, named by its path.
pub fn input(
    instructions: Option<&str>,
    before: Vec<Arc<Item>>,
    given: Option<Json>,
    (store, pictures): (&Store, &Pictures<'_>),
    new_id: impl Fn(&str) -> String,
) -> Result<Input> {
    let given = match given {
        Some(Json::String(text)) => vec![json!({"role": "user", "content": text})],
        Some(Json::Array(items)) => items,
        None => Vec::new(),
        Some(other) => return Err(expected("input", "a string or an array of items", &other)),
    };
    if given.is_empty() && before.is_empty() {
        return Err(ApiError::value("input", "is missing"));
    }
    let mut turns = Turns::default();
    // Empty ones are none, rather than an empty turn.
    if let Some(instructions) = instructions.filter(|text| !text.is_empty()) {
        turns.of(Role::System).say(instructions);
    }
    for item in &before {
        add(&mut turns, Reader::new("previous_response_id", item.json.clone())?, pictures)?;
    }
    let mut items = before;
    let path = |index| format!("input[{index}]");
    let all = given.iter().enumerate().map(|(index, item)| reference(&path(index), item));
    let references: Vec<Option<String>> = all.collect::<Result<_>>()?;
    let stored = store.items(&references.iter().flatten().map(String::as_str).collect());
    // Each of them may be meant many times.
    let mut bytes = 0;
    for (index, (item, reference)) in given.into_iter().zip(&references).enumerate() {
        let path = path(index);
        let item = match reference {
            None => Item::new(kept(item, &new_id)),
            Some(id) => {
                let found = stored.get(id.as_str()).cloned().ok_or_else(|| {
                    let reason = format!("there is no item `{id}` in the stored responses");
                    ApiError::value(format!("{path}.id"), reason)
                })?;
                bytes += found.bytes();
                check_repeated("input", bytes, 1)?;
                found
            }
        };
        add(&mut turns, Reader::new(path, item.json.clone())?, pictures)?;
        items.push(item);
    }
    Ok(Input { messages: turns.into_messages(), items })
}

/// The id that `item` stands for, where it is a reference.
fn reference(path: &str, item: &Json) -> Result<Option<String>> {
    let has = |name: &str| item.get(name).is_some_and(|value| !value.is_null());
    let bare = !has("type") && !has("role") && has("id");
    if !bare && item.get("type").is_none_or(|kind| kind != "item_reference") {
        return Ok(None);
    }
    let mut reader = Reader::new(path, item.clone())?;
    reader.take("type");
    let id = reader.text("id")?;
    let id = reader.need("id", id)?;
    reader.finish()?;
    Ok(Some(id))
}

/// `item` with a type and an id, and its text in parts.
fn kept(mut item: Json, new_id: impl Fn(&str) -> String) -> Json {
    let Some(fields) = item.as_object_mut() else { return item };
    fields.retain(|_, value| !value.is_null());
    if !fields.contains_key("type") && fields.contains_key("role") {
        fields.insert("type".into(), json!("message"));
    }
    let prefix = match fields.get("type").and_then(Json::as_str) {
        Some("message") => "msg_",
        Some("function_call") => "fc_",
        Some("function_call_output") => "fco_",
        Some("custom_tool_call") => "ctc_",
        Some("custom_tool_call_output") => "ctco_",
        _ => "rs_",
    };
    if !fields.contains_key("id") {
        fields.insert("id".into(), json!(new_id(prefix)));
    }
    if let Some(text) = fields.get("content").and_then(Json::as_str) {
        let is_answer = fields.get("role").is_some_and(|role| role == "assistant");
        let part = match is_answer {
            true => json!({"type": "output_text", "text": text, "annotations": []}),
            false => json!({"type": "input_text", "text": text}),
        };
        fields.insert("content".into(), json!([part]));
    }
    item
}

fn add(turns: &mut Turns, mut item: Reader, pictures: &Pictures<'_>) -> Result<()> {
    let kind = item.text("type")?;
    let kind = item.need("type", kind)?;
    item.text("id")?;
    if let Some(status) = item.text("status")?
        && !["in_progress", "completed", "incomplete"].contains(&status.as_str())
    {
        let reason = format!("`{status}` is not one of in_progress, completed, incomplete");
        return Err(ApiError::value(item.path("status"), reason));
    }
    match kind.as_str() {
        "message" => message(turns, &mut item, pictures)?,
        "reasoning" => {
            let thoughts = thoughts(&mut item)?;
            turns.of(Role::Assistant).think(&thoughts);
        }
        "function_call" => call(turns, &mut item, |item| {
            let text = item.text("arguments")?;
            Ok(arguments(item.need("arguments", text)?))
        })?,
        "custom_tool_call" => call(turns, &mut item, |item| {
            let input = item.text("input")?;
            Ok(json!({INPUT: item.need("input", input)?}))
        })?,
        "function_call_output" | "custom_tool_call_output" => result(turns, &mut item, pictures)?,
        other => {
            let reason = format!("the server takes no `{other}` items; it has no tools of its own");
            return Err(ApiError::unsupported(item.path("type"), reason));
        }
    }
    item.finish()
}

fn message(turns: &mut Turns, item: &mut Reader, pictures: &Pictures<'_>) -> Result<()> {
    let role = item.text("role")?;
    let role = item.need("role", role)?;
    let path = item.path("content");
    let said = item.take("content");
    let said = content(&path, item.need("content", said)?, pictures)?;
    let shown = [("pictures", said.has_pictures()), ("sounds", said.has_sounds())];
    if role != "user"
        && let Some((what, _)) = shown.into_iter().find(|(_, has)| *has)
    {
        let reason = format!("{what} belong to messages of the user, not of `{role}`");
        return Err(ApiError::value(path, reason));
    }
    if let Some(phase) = item.text("phase")?
        && !["commentary", "final_answer"].contains(&phase.as_str())
    {
        let reason = format!("`{phase}` is not one of commentary, final_answer");
        return Err(ApiError::value(item.path("phase"), reason));
    }
    match role.as_str() {
        // Templates know one role for instructions, and `system` is its name.
        "system" | "developer" => turns.of(Role::System).add(said),
        "user" => turns.begin(Role::User).add(said),
        "assistant" => turns.of(Role::Assistant).add(said),
        other => {
            let reason = format!("`{other}` is not one of user, assistant, system, developer");
            return Err(ApiError::value(item.path("role"), reason));
        }
    }
    Ok(())
}

/// The thoughts of an item: its `content`, else its `encrypted_content`, else its `summary`.
fn thoughts(item: &mut Reader) -> Result<String> {
    let list = |item: &mut Reader, name: &str, kinds: &[&str]| {
        let path = item.path(name);
        texts_of(&path, item.list(name)?.unwrap_or_default(), kinds)
    };
    let summary = list(item, "summary", &["summary_text"])?;
    let told = list(item, "content", &["reasoning_text", "text"])?;
    let sealed = item.text("encrypted_content")?;
    let open = sealed.as_deref().map(|sealed| {
        sealed.strip_prefix(OPEN_THOUGHTS).ok_or_else(|| {
            let reason = "another server encrypted it; leave the item out";
            ApiError::unsupported(item.path("encrypted_content"), reason)
        })
    });
    let open = open.transpose()?.unwrap_or_default();
    let first = [told.as_str(), open, summary.as_str()].into_iter().find(|text| !text.is_empty());
    Ok(first.unwrap_or_default().to_owned())
}

fn call(
    turns: &mut Turns,
    item: &mut Reader,
    arguments: impl FnOnce(&mut Reader) -> Result<Json>,
) -> Result<()> {
    let id = item.text("call_id")?;
    let id = item.need("call_id", id)?;
    let name = item.text("name")?;
    let name = item.need("name", name)?;
    let namespace = item.text("namespace")?;
    let arguments = arguments(item)?;
    called_directly(item)?;
    turns.call(id, full_name(namespace.as_deref(), &name), to_value(arguments));
    Ok(())
}

fn result(turns: &mut Turns, item: &mut Reader, pictures: &Pictures<'_>) -> Result<()> {
    let id = item.text("call_id")?;
    let id = item.need("call_id", id)?;
    let name = turns
        .answered(&id)
        .map_err(|none| ApiError::value(item.path("call_id"), none.reason("call", &id)))?;
    let path = item.path("output");
    let output = item.take("output");
    let output = content(&path, item.need("output", output)?, pictures)?;
    // The call has named the tool.
    item.text("name")?;
    item.text("namespace")?;
    called_directly(item)?;
    turns.result(id, name, output);
    Ok(())
}

/// Takes who called and how.
fn called_directly(item: &mut Reader) -> Result<()> {
    if let Some(caller) = item.object("caller")?
        && caller.get("type").and_then(Json::as_str) != Some("direct")
    {
        let reason = "the server runs no code that could call tools";
        return Err(ApiError::unsupported(item.path("caller"), reason));
    }
    if item.bool("async")? == Some(true) {
        let reason = "an answer ends with its calls";
        return Err(ApiError::unsupported(item.path("async"), reason));
    }
    Ok(())
}
