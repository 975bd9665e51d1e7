//! Chat messages.

use std::fmt;

use crate::{EncodedPicture, EncodedSound, Value};

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
    /// The content: text, [`Value::Null`] (an assistant that only calls tools), or a list of
    /// content parts for templates that take one. Pictures are parts
    /// ([`EncodedPicture::into_part`](crate::EncodedPicture::into_part)); a model without
    /// [`Feature::Images`](crate::Feature::Images) refuses them. Sounds are parts likewise, of
    /// [`Feature::Audio`](crate::Feature::Audio).
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

    /// A user message that shows these pictures, then says `text`.
    pub fn user_with_pictures(
        pictures: impl IntoIterator<Item = EncodedPicture>,
        text: impl Into<String>,
    ) -> Self {
        Message::user_with_parts(pictures.into_iter().map(EncodedPicture::into_part), text)
    }

    /// A user message of these content parts, which then says `text`.
    pub fn user_with_parts(
        parts: impl IntoIterator<Item = Value>,
        text: impl Into<String>,
    ) -> Self {
        let mut parts: Vec<Value> = parts.into_iter().collect();
        let fields = [("type", Value::from("text")), ("text", Value::String(text.into()))];
        parts.push(Value::Object(fields.map(|(key, value)| (key.to_owned(), value)).into()));
        Message { content: Value::Array(parts), ..Message::user("") }
    }

    /// The pictures of the content parts, in their order.
    pub fn pictures(&self) -> impl Iterator<Item = &EncodedPicture> {
        self.parts().iter().filter_map(EncodedPicture::of_part)
    }

    /// The sounds of the content parts, in their order.
    pub fn sounds(&self) -> impl Iterator<Item = &EncodedSound> {
        self.parts().iter().filter_map(EncodedSound::of_part)
    }

    fn parts(&self) -> &[Value] {
        match &self.content {
            Value::Array(parts) => parts.as_slice(),
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Message;
    use crate::{EncodedPicture, Value};

    fn picture(bytes: usize) -> EncodedPicture {
        EncodedPicture::new(vec![7; bytes], "fox.png")
    }

    #[test]
    fn a_message_holds_its_pictures_in_their_order() {
        let message = Message::user_with_pictures([picture(1), picture(2)], "What?");
        let sizes: Vec<usize> = message.pictures().map(|picture| picture.bytes.len()).collect();
        assert_eq!(sizes, [1, 2]);
        let Value::Array(parts) = &message.content else { panic!("a list of parts") };
        assert_eq!(parts[2].get("text"), Some(&Value::from("What?")));
        assert_eq!(Message::user("What?").pictures().count(), 0);
    }

    #[test]
    fn a_part_of_text_alone_is_no_picture() {
        let part = |image: Value| {
            Value::Object(vec![("type".into(), "image".into()), ("image".into(), image)])
        };
        assert_eq!(EncodedPicture::of_part(&part("fox.png".into())), None);
        assert_eq!(EncodedPicture::of_part(&part(Value::Picture(picture(3)))), Some(&picture(3)));
    }
}
