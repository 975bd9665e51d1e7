//! Anthropic's turns, made of blocks, as the contract's messages.

use std::collections::BTreeMap;

use inference_core::{Message, Role, Value};
use inference_text::json::to_value;
use serde_json::Value as Json;

use crate::error::{ApiError, Kind, Result};
use crate::fields::reader::{Reader, expected};
use crate::protocol::conversation::Conversation;

/// What stands between texts that become one.
const BETWEEN: &str = "\n\n";

/// The messages of the fields `system` and `messages`. Turns of one role that follow each other are
/// one message.
///
/// # Errors
/// What is wrong with which block.
pub fn messages(system: Option<Json>, items: Vec<Json>) -> Result<Vec<Message>> {
    if items.is_empty() {
        return Err(ApiError::value("messages", "is empty"));
    }
    let mut turns = Turns::default();
    if let Some(system) = system {
        let text = texts("system", system)?;
        turns.add(Role::System, |turn| join(&mut turn.text, &text));
    }
    let last = items.len() - 1;
    for (index, item) in items.into_iter().enumerate() {
        let mut reader = Reader::new(format!("messages[{index}]"), item)?;
        let role = reader.text("role")?;
        let role = reader.need("role", role)?;
        let content = reader.take("content");
        let content = reader.need("content", content)?;
        let path = reader.path("content");
        match role.as_str() {
            "system" => {
                let text = texts(&path, content)?;
                turns.add(Role::System, |turn| join(&mut turn.text, &text));
            }
            "user" => turns.user(&path, content)?,
            "assistant" if index == last => {
                let reason = "the last turn is the assistant's, and the model cannot continue an \
                              answer that was begun";
                return Err(ApiError::unsupported(reader.path("role"), reason));
            }
            "assistant" => turns.assistant(&path, content)?,
            other => {
                let reason = format!("`{other}` is not one of user, assistant, system");
                return Err(ApiError::value(reader.path("role"), reason));
            }
        }
        reader.finish()?;
    }
    Ok(turns.list.into_iter().map(Turn::message).collect())
}

/// What `render` makes of `conversation`. Where the template refuses instructions in the middle, they
/// are all moved to the beginning.
///
/// # Errors
/// What `render` fails with.
pub fn with_system_anywhere<T>(
    mut conversation: Conversation,
    render: impl Fn(&Conversation) -> Result<T>,
) -> Result<T> {
    let is_system = |message: &Message| message.role == Role::System;
    let later = conversation.messages.iter().skip(1).any(is_system);
    match render(&conversation) {
        Err(error) if error.kind == Kind::Prompt && later => {
            let (system, rest): (Vec<_>, Vec<_>) =
                conversation.messages.into_iter().partition(is_system);
            let text: Vec<&str> = system.iter().filter_map(|one| one.content.as_str()).collect();
            conversation.messages = vec![Message::new(Role::System, text.join(BETWEEN))];
            for message in rest {
                match (conversation.messages.last_mut(), message.content.as_str()) {
                    // Nothing stands between them any more.
                    (Some(last), Some(more))
                        if last.role == Role::User && message.role == Role::User =>
                    {
                        let mut whole = last.content.as_str().unwrap_or_default().to_owned();
                        join(&mut whole, more);
                        last.content = Value::from(whole);
                    }
                    _ => conversation.messages.push(message),
                }
            }
            render(&conversation)
        }
        rendered => rendered,
    }
}

/// The turns so far.
#[derive(Default)]
struct Turns {
    list: Vec<Turn>,
    /// The names of tools by the ids of their calls.
    called: BTreeMap<String, String>,
}

/// What becomes one message.
struct Turn {
    role: Role,
    text: String,
    reasoning: String,
    calls: Vec<Value>,
    /// Of a tool's result: whose it is.
    result_of: Vec<(String, Value)>,
}

impl Turn {
    fn message(self) -> Message {
        let mut fields = self.result_of;
        if !self.reasoning.is_empty() {
            fields.push(("reasoning_content".to_owned(), Value::from(self.reasoning)));
        }
        let silent = self.text.is_empty() && (!self.calls.is_empty() || !fields.is_empty());
        let is_result = self.role == Role::Tool;
        if !self.calls.is_empty() {
            fields.push(("tool_calls".to_owned(), Value::Array(self.calls)));
        }
        let content = if silent && !is_result { Value::Null } else { Value::from(self.text) };
        Message { role: self.role, content, fields }
    }
}

impl Turns {
    /// Adds to the turn of `role`, which is a new one unless the last one has it.
    fn add(&mut self, role: Role, what: impl FnOnce(&mut Turn)) {
        if self.list.last().is_none_or(|last| last.role != role || role == Role::Tool) {
            let (text, reasoning) = (String::new(), String::new());
            self.list.push(Turn {
                role,
                text,
                reasoning,
                calls: Vec::new(),
                result_of: Vec::new(),
            });
        }
        if let Some(turn) = self.list.last_mut() {
            what(turn);
        }
    }

    fn user(&mut self, path: &str, content: Json) -> Result<()> {
        for mut block in blocks(path, content)? {
            match kind(&mut block)?.as_str() {
                "text" => {
                    let text = text(block)?;
                    self.add(Role::User, |turn| join(&mut turn.text, &text));
                }
                "tool_result" => self.tool_result(block)?,
                other => return Err(no_such_block(&block, other)),
            }
        }
        Ok(())
    }

    fn tool_result(&mut self, mut block: Reader) -> Result<()> {
        let id = block.text("tool_use_id")?;
        let id = block.need("tool_use_id", id)?;
        let Some(name) = self.called.get(&id).cloned() else {
            let reason = format!("no `tool_use` before it has the id `{id}`");
            return Err(ApiError::value(block.path("tool_use_id"), reason));
        };
        let path = block.path("content");
        let mut result = match block.take("content") {
            Some(content) => texts(&path, content)?,
            None => String::new(),
        };
        // Templates have no other place for it.
        if block.bool("is_error")? == Some(true) {
            result.insert_str(0, "Error: ");
        }
        hints(&mut block)?;
        block.finish()?;
        self.add(Role::Tool, |turn| {
            turn.text = result;
            turn.result_of =
                vec![("tool_call_id".into(), Value::from(id)), ("name".into(), Value::from(name))];
        });
        Ok(())
    }

    fn assistant(&mut self, path: &str, content: Json) -> Result<()> {
        for mut block in blocks(path, content)? {
            match kind(&mut block)?.as_str() {
                "text" => {
                    let text = text(block)?;
                    self.add(Role::Assistant, |turn| join(&mut turn.text, &text));
                }
                "thinking" => {
                    let thought = block.text("thinking")?;
                    let thought = block.need("thinking", thought)?;
                    // Thoughts are taken as they are, whoever signed them.
                    block.text("signature")?;
                    block.finish()?;
                    self.add(Role::Assistant, |turn| join(&mut turn.reasoning, &thought));
                }
                "tool_use" => {
                    let call = self.tool_use(block)?;
                    self.add(Role::Assistant, |turn| turn.calls.push(call));
                }
                other => return Err(no_such_block(&block, other)),
            }
        }
        Ok(())
    }

    /// A call as templates take it.
    fn tool_use(&mut self, mut block: Reader) -> Result<Value> {
        let id = block.text("id")?;
        let id = block.need("id", id)?;
        let name = block.text("name")?;
        let name = block.need("name", name)?;
        let input = block.object("input")?;
        let input = block.need("input", input)?;
        if let Some(caller) = block.take("caller")
            && caller.get("type").and_then(Json::as_str) != Some("direct")
        {
            let reason = "the server runs no code that could call tools";
            return Err(ApiError::unsupported(block.path("caller"), reason));
        }
        hints(&mut block)?;
        block.finish()?;
        self.called.insert(id.clone(), name.clone());
        let function = vec![
            ("name".to_owned(), Value::from(name)),
            ("arguments".to_owned(), to_value(Json::Object(input))),
        ];
        Ok(Value::Object(vec![
            ("id".to_owned(), Value::from(id)),
            ("type".to_owned(), Value::from("function")),
            ("function".to_owned(), Value::Object(function)),
        ]))
    }
}

/// The blocks of `content`, which may be one text.
fn blocks(path: &str, content: Json) -> Result<Vec<Reader>> {
    match content {
        Json::String(text) => {
            let block = serde_json::json!({"type": "text", "text": text});
            Ok(vec![Reader::new(path, block)?])
        }
        Json::Array(items) => {
            let one = |(index, item)| Reader::new(format!("{path}[{index}]"), item);
            items.into_iter().enumerate().map(one).collect()
        }
        other => Err(expected(path, "a string or an array of blocks", &other)),
    }
}

fn kind(block: &mut Reader) -> Result<String> {
    let kind = block.text("type")?;
    block.need("type", kind)
}

fn no_such_block(block: &Reader, kind: &str) -> ApiError {
    let reason = match kind {
        "image" | "document" | "search_result" => "this model reads text alone".to_owned(),
        other => format!("there are no `{other}` blocks here"),
    };
    ApiError::unsupported(block.path("type"), reason)
}

/// The text of `content`, of which all blocks are texts.
fn texts(path: &str, content: Json) -> Result<String> {
    let mut whole = String::new();
    for mut block in blocks(path, content)? {
        match kind(&mut block)?.as_str() {
            "text" => join(&mut whole, &text(block)?),
            other => return Err(no_such_block(&block, other)),
        }
    }
    Ok(whole)
}

fn text(mut block: Reader) -> Result<String> {
    let text = block.text("text")?;
    let text = block.need("text", text)?;
    if block.list("citations")?.is_some_and(|citations| !citations.is_empty()) {
        let reason = "there are no documents to cite";
        return Err(ApiError::unsupported(block.path("citations"), reason));
    }
    hints(&mut block)?;
    block.finish()?;
    Ok(text)
}

/// Takes what asks for nothing: what is cached is found by its tokens.
fn hints(block: &mut Reader) -> Result<()> {
    block.object("cache_control").map(drop)
}

fn join(whole: &mut String, text: &str) {
    if !whole.is_empty() && !text.is_empty() {
        whole.push_str(BETWEEN);
    }
    whole.push_str(text);
}
