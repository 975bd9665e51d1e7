//! System messages for Gemma 1 to 3, whose chat format has no such role.

use inference_core::{Error, Message, Result, Role, Value};

/// Returns true for messages with a system message, if the architecture has no turn for it.
///
/// Such models get it as the user's. Gemma 4 has a turn for it.
pub(crate) fn is_needed(architecture: &str, messages: &[Message]) -> bool {
    let has_no_role = architecture == "gemma"
        || ["gemma2", "gemma3"].iter().any(|family| architecture.starts_with(family));
    has_no_role && messages.iter().any(|message| message.role == Role::System)
}

/// Each system message as a user's turn `[System: …]`.
///
/// # Errors
/// A system message that is no text.
pub(crate) fn as_turns(messages: &[Message]) -> Result<Vec<Message>> {
    let turn = |message: &Message| match message.role {
        Role::System => Ok(Message::user(bracketed(message)?)),
        _ => Ok(message.clone()),
    };
    messages.iter().map(turn).collect()
}

/// Puts the system's text before that of the user's next turn, with an empty line between, for
/// templates that refuse two turns of the user in a row.
///
/// # Errors
/// A message that is no text.
pub(crate) fn within_turns(messages: &[Message]) -> Result<Vec<Message>> {
    let mut turns = Vec::with_capacity(messages.len());
    let mut waiting = Vec::new();
    for message in messages {
        match message.role {
            Role::System => waiting.push(bracketed(message)?),
            Role::User if !waiting.is_empty() => {
                waiting.push(text(message)?.to_owned());
                let content = Value::String(std::mem::take(&mut waiting).join("\n\n"));
                turns.push(Message { content, ..message.clone() });
            }
            _ => turns.push(message.clone()),
        }
    }
    if !waiting.is_empty() {
        turns.push(Message::user(waiting.join("\n\n")));
    }
    Ok(turns)
}

fn bracketed(message: &Message) -> Result<String> {
    Ok(format!("[System: {}]", text(message)?))
}

fn text(message: &Message) -> Result<&str> {
    message.content.as_str().ok_or_else(|| Error::Unsupported {
        what: format!("a {} message of parts", message.role),
        reason: "beside a system message for Gemma, this facade takes text only".into(),
    })
}
