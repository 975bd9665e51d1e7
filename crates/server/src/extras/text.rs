//! `POST /tokenize`, `/detokenize` and `/apply-template`.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value as Json, json};

use crate::body::{self, json_response};
use crate::error::{ApiError, Result};
use crate::fields;
use crate::openai::tables;
use crate::openai::template::{Conversation, conversation};
use crate::state::State;

/// The token ids of a text or of a conversation.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn tokenize(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    state.loaded()?;
    let (body, size) = body::object(&state, request).await?;
    let limits = &state.config.limits;
    let mut reader = fields::check(&[tables::TEMPLATE, tables::TOKENIZE], limits, body)?;
    let model = state.serve(reader.text("model")?.as_deref())?.model;
    let texts = (reader.text("prompt")?, reader.text("content")?);
    let messages = reader.list("messages")?;
    let context = model.info().context_length;
    let ids = match (texts, messages) {
        ((Some(text), None) | (None, Some(text)), None) => {
            reader.finish()?;
            let work = move || Ok(model.encode(&text)?);
            state.text_work(size, work).await.map_err(|error| error.or_about("prompt"))?
        }
        ((None, None), Some(items)) => {
            let Conversation { messages, chat, .. } = conversation(&mut reader, items)?;
            reader.finish()?;
            let work = move || Ok(model.render_chat(&messages, &chat)?.ids);
            state.text_work(size, work).await.map_err(|error| error.or_about("messages"))?
        }
        ((None, None), None) => return Err(ApiError::value("prompt", "is missing")),
        _ => {
            let reason = "only one of `prompt`, `content` and `messages` can be tokenized";
            return Err(ApiError::value("prompt", reason));
        }
    };
    let object = json!({"tokens": ids, "count": ids.len(), "max_model_len": context});
    Ok(json_response(StatusCode::OK, &object))
}

/// The text of token ids.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn detokenize(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    state.loaded()?;
    let (body, size) = body::object(&state, request).await?;
    let mut reader = fields::check(&[tables::DETOKENIZE], &state.config.limits, body)?;
    let model = state.serve(reader.text("model")?.as_deref())?.model;
    let ids = reader.ids("tokens")?.unwrap_or_default();
    reader.finish()?;
    let count = model.info().vocab_size;
    if let Some(at) = ids.iter().position(|id| *id as usize >= count) {
        let reason = format!("{} is not in the vocabulary of {count}", ids[at]);
        return Err(ApiError::value(format!("tokens[{at}]"), reason));
    }
    let work = move || Ok(model.decode(&ids)?);
    let text = state.text_work(size, work).await.map_err(|error| error.or_about("tokens"))?;
    Ok(json_response(StatusCode::OK, &json!({"prompt": text, "content": text})))
}

/// The prompt that a conversation becomes.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn apply_template(
    Shared(state): Shared<Arc<State>>,
    request: Request,
) -> Result<Response> {
    state.loaded()?;
    let (body, size) = body::object(&state, request).await?;
    let limits = &state.config.limits;
    let mut reader = fields::check(&[tables::TEMPLATE, tables::APPLY_TEMPLATE], limits, body)?;
    let model = state.serve(reader.text("model")?.as_deref())?.model;
    let items = reader.list("messages")?;
    let items: Vec<Json> = reader.need("messages", items)?;
    let Conversation { messages, chat, .. } = conversation(&mut reader, items)?;
    reader.finish()?;
    let work = move || Ok(model.render_chat(&messages, &chat)?);
    let prompt = state.text_work(size, work).await.map_err(|error| error.or_about("messages"))?;
    let object = json!({"prompt": prompt.text, "tokens": prompt.ids, "count": prompt.ids.len()});
    Ok(json_response(StatusCode::OK, &object))
}
