//! Conversations as prompts: the fields that chats and the template's own endpoints share.

use inference_core::{ChatOptions, Message, Role, Value};
use inference_text::json::to_value;
use serde_json::Value as Json;

use super::messages::{messages, tools};
use crate::error::{ApiError, Result};
use crate::fields::reader::{Reader, expected};
use crate::protocol::conversation::Conversation;
use crate::protocol::pictures::Pictures;

/// Takes `messages` (given as `items`), `tools`, `chat_template_kwargs` and
/// `add_generation_prompt`.
///
/// # Errors
/// The first field that means nothing.
pub fn conversation(
    reader: &mut Reader,
    mut items: Vec<Json>,
    pictures: &Pictures<'_>,
) -> Result<Conversation> {
    let place = items.len().saturating_sub(1);
    let last = items.last_mut().map(|last| is_begun(last, place));
    let is_begun = last.transpose()?.flatten();
    let messages = messages(items, pictures)?;
    let tools = tools(reader.list("tools")?.unwrap_or_default())?;
    let chat = ChatOptions {
        tools: tools.definitions,
        template_kwargs: variables(reader)?,
        continue_final_message: continues(reader, is_begun, &messages)?,
        add_generation_prompt: reader.bool("add_generation_prompt")?.unwrap_or(true),
    };
    Ok(Conversation { messages, chat, tools: tools.callable, ..Conversation::default() })
}

/// Takes from a message what DeepSeek's, Mistral's and Moonshot's clients say there: whether it was
/// only begun.
fn is_begun(message: &mut Json, place: usize) -> Result<Option<bool>> {
    let mut asked = None;
    for name in ["prefix", "partial"] {
        match message.as_object_mut().and_then(|fields| fields.shift_remove(name)) {
            None | Some(Json::Null) => {}
            Some(Json::Bool(flag)) if asked.is_none_or(|other| other == flag) => asked = Some(flag),
            Some(Json::Bool(_)) => {
                let reason = "contradicts the `prefix` beside it";
                return Err(ApiError::value(format!("messages[{place}].{name}"), reason));
            }
            Some(other) => {
                return Err(expected(format!("messages[{place}].{name}"), "a boolean", &other));
            }
        }
    }
    Ok(asked)
}

/// Returns true when the answer goes on with the last message: where the request says so, where
/// that message does (`is_begun`), and else where it is the assistant's and has text.
fn continues(reader: &mut Reader, is_begun: Option<bool>, messages: &[Message]) -> Result<bool> {
    let last = messages.last().filter(|last| last.role == Role::Assistant);
    let asked = reader.bool("continue_final_message")?;
    if asked.or(is_begun) == Some(true) && last.is_none() {
        let reason = "the last message is not the assistant's";
        return Err(ApiError::value("continue_final_message", reason));
    }
    if let (Some(asked), Some(begun)) = (asked, is_begun)
        && asked != begun
    {
        let reason = "contradicts what the last message says";
        return Err(ApiError::value("continue_final_message", reason));
    }
    let answers_anew = reader.copy("add_generation_prompt");
    if asked.or(is_begun) == Some(true) && answers_anew == true {
        let reason = "contradicts `add_generation_prompt`";
        return Err(ApiError::value("continue_final_message", reason));
    }
    let by_itself = || answers_anew.is_null() && last.is_some_and(is_open);
    Ok(asked.or(is_begun).unwrap_or_else(by_itself))
}

/// Returns true for an answer that has text and no calls.
pub fn is_open(answer: &Message) -> bool {
    let text = match &answer.content {
        Value::Array(parts) => {
            parts.last().and_then(|part| part.get("text")).and_then(Value::as_str)
        }
        content => content.as_str(),
    };
    let calls = answer.fields.iter().any(|(name, _)| name == "tool_calls");
    !calls && text.is_some_and(|text| !text.trim().is_empty())
}

/// Variables that the request's own fields set.
const RESERVED: [&str; 4] = ["messages", "tools", "add_generation_prompt", "chat_template"];

fn variables(reader: &mut Reader) -> Result<Vec<(String, Value)>> {
    let variables = reader.object("chat_template_kwargs")?.unwrap_or_default();
    if let Some(name) = variables.keys().find(|name| RESERVED.contains(&name.as_str())) {
        let path = format!("chat_template_kwargs.{name}");
        return Err(ApiError::unsupported(path, "it is not a variable that a request sets"));
    }
    Ok(variables.into_iter().map(|(name, value)| (name, to_value(value))).collect())
}
