//! The prompts of a request: texts or token ids, or a conversation, which may have pictures.

use inference_core::{Prompt, TextModel};
use serde_json::Value as Json;

use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::protocol::conversation::Conversation;
use crate::protocol::openai::template::conversation;
use crate::protocol::pictures::Pictures;
use crate::run::state::State;

/// The prompts of a request, or the one that its conversation becomes.
pub enum Given {
    Prompts(&'static str, Vec<Prompt>),
    Chat(Box<Conversation>),
}

impl Given {
    /// The field `name`, whose value `read` reads, or `messages` with the template's fields.
    ///
    /// # Errors
    /// None or both of them, or what they have is none.
    pub fn of(
        reader: &mut Reader,
        name: &'static str,
        (state, model): (&State, &dyn TextModel),
        read: impl FnOnce(Json) -> Result<Vec<Prompt>>,
    ) -> Result<Given> {
        match (reader.take(name), reader.list("messages")?) {
            (Some(value), None) => Ok(Given::Prompts(name, read(value)?)),
            (None, Some(items)) => {
                let pictures = Pictures::of(state, model);
                Ok(Given::Chat(Box::new(conversation(reader, items, &pictures)?)))
            }
            (None, None) => Err(ApiError::value(name, "is missing, and so is `messages`")),
            (Some(_), Some(_)) => {
                let reason = format!("only one of `{name}` and `messages` can be given");
                Err(ApiError::value("messages", reason))
            }
        }
    }

    /// The field that they come from.
    pub fn field(&self) -> &'static str {
        match self {
            Given::Prompts(name, _) => name,
            Given::Chat(_) => "messages",
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Given::Prompts(_, prompts) => prompts.len(),
            Given::Chat(_) => 1,
        }
    }

    /// The prompts, as `model`'s template has them where they are a conversation.
    ///
    /// # Errors
    /// The template's.
    pub fn prompts(self, model: &dyn TextModel) -> Result<Vec<Prompt>> {
        match self {
            Given::Prompts(_, prompts) => Ok(prompts),
            Given::Chat(asked) => {
                Ok(vec![model.render_chat(&asked.messages, &asked.chat)?.prompt()])
            }
        }
    }
}
