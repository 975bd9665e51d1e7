//! `POST /api/generate`.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::response::Response;
use inference_core::{Message, Prompt, Role};
use inference_text::answer::ToolChoice;

use super::ask::{Ask, ask};
use super::messages::images;
use super::options::{asked, think};
use super::tables;
use super::wire::{Kind, LineWire};
use crate::error::{ApiError, Result};
use crate::fields::told::is_empty;
use crate::pool::models::Makes;
use crate::protocol::content::Content;
use crate::protocol::conversation::{Calls, Conversation, ToolFields};
use crate::protocol::generate::{Started, generate};
use crate::protocol::infill::{Infill, infill};
use crate::protocol::pictures::Pictures;
use crate::run::reading::Reading;
use crate::run::state::State;

/// There are no tools here.
const TOOL_FIELDS: ToolFields = ToolFields { tools: "prompt", choice: "prompt", schema: "prompt" };

/// Answers a prompt, or continues it. One without a prompt loads the model, or unloads it.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let tables = &[tables::GENERATING, tables::GENERATE];
    let mut ask = ask(&state, request, tables, Makes::Text).await?;
    let mut asked = asked(&mut ask.reader, &state.config.limits, "prompt")?;
    let prompt = ask.reader.text("prompt")?.unwrap_or_default();
    if prompt.is_empty() {
        return ask.of_nothing(&state, Kind::Generate, "prompt").await;
    }
    let (loaded, head) = ask.loaded(&state, Kind::Generate).await?;
    let Ask { mut reader, bytes, .. } = ask;
    let suffix = reader.text("suffix")?.filter(|suffix| !suffix.is_empty());
    if reader.bool("raw")? == Some(true) || suffix.is_some() {
        let other = if suffix.is_some() { "suffix" } else { "raw" };
        for field in ["system", "images", "think"] {
            if reader.take(field).is_some_and(|value| !is_empty(&value)) {
                let reason = format!("needs the chat template, and `{other}` goes without");
                return Err(ApiError::value(field, reason));
            }
        }
        reader.finish()?;
        return generate(&state, &loaded, asked, bytes, move |loaded, asked| {
            let model = loaded.model.as_ref();
            let (ids, ends) = match &suffix {
                Some(suffix) => {
                    let Infill { ids, ends, .. } = infill(model, &[], (&prompt, suffix), "suffix")?;
                    (ids, ends)
                }
                None => (model.encode(&prompt)?, Vec::new()),
            };
            asked.check_context(ids.len())?;
            let mut options = asked.options_of(0, model, ids.len());
            options.stop_token_ids.extend(ends);
            let scores = options.logprobs.then(|| Arc::clone(&loaded.model));
            let generation = model.generate(&Prompt::Ids(ids), &options)?;
            let generations = vec![(generation, Reading::of_text(scores))];
            Ok(Started { generations, wire: LineWire::new(head) })
        })
        .await;
    }

    let pictures = Pictures::of(&state, loaded.model.as_ref());
    let mut content = Content::new("");
    content.text(&prompt);
    for picture in images(&mut reader, loaded.model.as_ref(), &pictures)? {
        content.picture(picture);
    }
    let system = reader.text("system")?.filter(|text| !text.is_empty());
    let mut messages: Vec<_> =
        system.map(|text| Message::new(Role::System, text)).into_iter().collect();
    messages.push(Message { role: Role::User, content: content.into_value(), fields: Vec::new() });
    let mut conversation = Conversation { messages, ..Conversation::default() };
    conversation.think(think(&mut reader, loaded.effort)?, ("think", "think"), &loaded)?;
    // The marks of thoughts have to be seen.
    let calls = Calls { choice: ToolChoice::Auto, most: 0, fields: TOOL_FIELDS };
    conversation.allow(&calls, &loaded, &mut asked.options, &mut asked.names)?;
    reader.finish()?;
    generate(&state, &loaded, asked, bytes, move |loaded, asked| {
        let (_, generations) = conversation.start(loaded, asked, usize::MAX)?;
        Ok(Started { generations, wire: LineWire::new(head) })
    })
    .await
}
