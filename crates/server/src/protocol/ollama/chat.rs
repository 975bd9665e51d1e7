//! `POST /api/chat`.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::response::Response;
use inference_core::{ChatOptions, Role};

use super::ask::{Ask, ask};
use super::messages::messages;
use super::options::{asked, think};
use super::tables;
use super::wire::{Kind, LineWire};
use crate::error::Result;
use crate::pool::models::Makes;
use crate::protocol::conversation::{Calls, Conversation, ToolFields};
use crate::protocol::generate::{Started, generate};
use crate::protocol::openai::messages::tools;
use crate::protocol::openai::template::is_open;
use crate::protocol::openai::tool_choice::choice;
use crate::protocol::pictures::Pictures;
use crate::run::state::State;

/// The fields that errors about tools name.
const TOOL_FIELDS: ToolFields =
    ToolFields { tools: "tools", choice: "tool_choice", schema: "function.parameters" };

/// Answers a conversation. One without messages loads the model, or unloads it.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let mut ask = ask(&state, request, &[tables::GENERATING, tables::CHAT], Makes::Text).await?;
    let mut asked = asked(&mut ask.reader, &state.config.limits, "messages")?;
    let items = ask.reader.list("messages")?.unwrap_or_default();
    if items.is_empty() {
        return ask.of_nothing(&state, Kind::Chat, "messages").await;
    }
    let (loaded, head) = ask.loaded(&state, Kind::Chat).await?;
    let Ask { mut reader, bytes, .. } = ask;

    let pictures = Pictures::of(&state, loaded.model.as_ref());
    let messages = messages(items, loaded.model.as_ref(), &pictures)?;
    let tools = tools(reader.list("tools")?.unwrap_or_default())?;
    let last = messages.last().filter(|last| last.role == Role::Assistant);
    let chat = ChatOptions {
        tools: tools.definitions,
        continue_final_message: last.is_some_and(is_open),
        ..ChatOptions::default()
    };
    let mut conversation =
        Conversation { messages, chat, tools: tools.callable, ..Conversation::default() };
    conversation.think(think(&mut reader, loaded.effort)?, ("think", "think"), &loaded)?;
    let calls = Calls { choice: choice(&mut reader)?, most: usize::MAX, fields: TOOL_FIELDS };
    conversation.allow(&calls, &loaded, &mut asked.options, &mut asked.names)?;
    reader.finish()?;
    generate(&state, &loaded, asked, bytes, move |loaded, asked| {
        let (_, generations) = conversation.start(loaded, asked, usize::MAX)?;
        Ok(Started { generations, wire: LineWire::new(head) })
    })
    .await
}
