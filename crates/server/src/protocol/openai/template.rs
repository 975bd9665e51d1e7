//! Conversations as prompts: the fields that chats and the template's own endpoints share.

use inference_core::{ChatOptions, Value};
use inference_text::json::to_value;
use serde_json::Value as Json;

use super::messages::{messages, tools};
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::protocol::conversation::Conversation;
use crate::protocol::pictures::Pictures;

/// Takes `messages` (given as `items`), `tools`, `chat_template_kwargs` and
/// `add_generation_prompt`.
///
/// # Errors
/// The first field that means nothing.
pub fn conversation(
    reader: &mut Reader,
    items: Vec<Json>,
    pictures: &Pictures<'_>,
) -> Result<Conversation> {
    let messages = messages(items, pictures)?;
    let tools = tools(reader.list("tools")?.unwrap_or_default())?;
    let chat = ChatOptions {
        tools: tools.definitions,
        template_kwargs: variables(reader)?,
        add_generation_prompt: reader.bool("add_generation_prompt")?.unwrap_or(true),
    };
    Ok(Conversation { messages, chat, tools: tools.callable })
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
