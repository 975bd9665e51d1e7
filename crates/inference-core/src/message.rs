//! Chat messages.

use std::fmt;

use crate::Value;

/// Who speaks in a [`Message`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions that stand over the conversation.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
    /// A role that only some chat templates know, such as `developer`.
    Other(String),
}

impl Role {
    /// The name that chat templates see.
    pub fn as_str(&self) -> &str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
            Role::Other(name) => name,
        }
    }
}

impl From<&str> for Role {
    fn from(name: &str) -> Self {
        match name {
            "system" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            other => Role::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One turn of a conversation, as the chat template receives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said: text, [`Value::Null`] (an assistant that only calls tools), or a list of
    /// content parts for templates that take one.
    pub content: Value,
    /// Every other field (`tool_calls`, `tool_call_id`, `name`, `reasoning_content`, …), handed
    /// to the template unchanged and in this order.
    pub fields: Vec<(String, Value)>,
}

impl Message {
    /// A message of plain text.
    pub fn new(role: Role, content: impl Into<Value>) -> Self {
        Message { role, content: content.into(), fields: Vec::new() }
    }

    /// A system message of plain text.
    pub fn system(content: impl Into<String>) -> Self {
        Message::new(Role::System, content.into())
    }

    /// A user message of plain text.
    pub fn user(content: impl Into<String>) -> Self {
        Message::new(Role::User, content.into())
    }

    /// An assistant message of plain text.
    pub fn assistant(content: impl Into<String>) -> Self {
        Message::new(Role::Assistant, content.into())
    }

    /// The plain text result of a tool call; `fields` may tell which one.
    pub fn tool(content: impl Into<String>) -> Self {
        Message::new(Role::Tool, content.into())
    }
}
