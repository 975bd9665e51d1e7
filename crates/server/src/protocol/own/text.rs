//! `POST /tokenize`, `/detokenize` and `/apply-template`.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use inference_core::TextModel;
use serde_json::{Value as Json, json};

use super::tables;
use crate::error::{ApiError, Result};
use crate::http::response::json_response;
use crate::protocol::conversation::Conversation;
use crate::protocol::openai::template::conversation;
use crate::protocol::pictures::Pictures;
use crate::protocol::request::{Checked, checked};
use crate::protocol::tokens::bare;
use crate::run::state::State;

/// The token ids of a text or of a conversation.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn tokenize(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let tables = &[tables::TEMPLATE, tables::TOKENIZE];
    let Checked { mut reader, loaded, bytes } = checked(&state, request, tables).await?;
    let model = Arc::clone(&loaded.model);
    let texts = (reader.text("prompt")?, reader.text("content")?);
    let messages = reader.list("messages")?;
    let has_pieces = reader.bool("with_pieces")?.unwrap_or(false);
    let has_texts = reader.bool("return_token_strs")?.unwrap_or(false);
    let with_special = reader.bool("add_special")?;
    if with_special == Some(true) && messages.is_some() {
        let reason = "the chat template writes them, where it has any";
        return Err(ApiError::unsupported("add_special", reason));
    }
    let speller = Arc::clone(&loaded.model);
    let context = model.info().context_length;
    let ids = match (texts, messages) {
        ((Some(text), None) | (None, Some(text)), None) => {
            reader.finish()?;
            let work = move || match with_special {
                Some(false) => bare(model.as_ref(), &text),
                _ => Ok(model.encode(&text)?),
            };
            state.text_work(bytes, work).await.map_err(|error| error.or_about("prompt"))?
        }
        ((None, None), Some(items)) => {
            let pictures = Pictures::of(&state, model.as_ref());
            let Conversation { messages, chat, .. } = conversation(&mut reader, items, &pictures)?;
            reader.finish()?;
            let work = move || Ok(model.render_chat(&messages, &chat)?.ids);
            state.text_work(bytes, work).await.map_err(|error| error.or_about("messages"))?
        }
        ((None, None), None) => return Err(ApiError::value("prompt", "is missing")),
        _ => {
            let reason = "only one of `prompt`, `content` and `messages` can be tokenized";
            return Err(ApiError::value("prompt", reason));
        }
    };
    let count = ids.len();
    let tell = move || {
        let mut object = json!({"tokens": ids, "count": count, "max_model_len": context});
        if has_texts {
            let text = |id: &u32| match piece(speller.as_ref(), *id) {
                Json::String(text) => Json::String(text),
                _ => json!(speller.decode(&[*id]).unwrap_or_default()),
            };
            object["token_strs"] = ids.iter().map(text).collect();
        }
        if has_pieces {
            let one = |id: &u32| json!({"id": id, "piece": piece(speller.as_ref(), *id)});
            object["tokens"] = ids.iter().map(one).collect();
        }
        Ok(object)
    };
    let object = state.text_work(bytes, tell).await?;
    Ok(json_response(StatusCode::OK, &object))
}

/// The text of a token by itself, or its bytes where they are a part of a character.
fn piece(model: &dyn TextModel, id: u32) -> Json {
    if let Some(name) = model.special_token(id) {
        return json!(name);
    }
    match model.token_bytes(id).map(String::from_utf8) {
        Ok(Ok(text)) => json!(text),
        Ok(Err(part)) => json!(part.into_bytes()),
        Err(_) => json!(model.decode(&[id]).unwrap_or_default()),
    }
}

/// The text of token ids.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn detokenize(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let tables = &[tables::DETOKENIZE];
    let Checked { mut reader, loaded, bytes } = checked(&state, request, tables).await?;
    let model = Arc::clone(&loaded.model);
    let ids = reader.ids("tokens")?.unwrap_or_default();
    reader.finish()?;
    let count = model.info().vocab_size;
    if let Some(at) = ids.iter().position(|id| *id as usize >= count) {
        let reason = format!("{} is not in the vocabulary of {count}", ids[at]);
        return Err(ApiError::value(format!("tokens[{at}]"), reason));
    }
    let work = move || Ok(model.decode_with_special(&ids)?);
    let text = state.text_work(bytes, work).await.map_err(|error| error.or_about("tokens"))?;
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
    let tables = &[tables::TEMPLATE, tables::APPLY_TEMPLATE];
    let Checked { mut reader, loaded, bytes } = checked(&state, request, tables).await?;
    let model = Arc::clone(&loaded.model);
    let items = reader.list("messages")?;
    let items: Vec<Json> = reader.need("messages", items)?;
    let pictures = Pictures::of(&state, model.as_ref());
    let Conversation { messages, chat, .. } = conversation(&mut reader, items, &pictures)?;
    reader.finish()?;
    let work = move || Ok(model.render_chat(&messages, &chat)?);
    let prompt = state.text_work(bytes, work).await.map_err(|error| error.or_about("messages"))?;
    let object = json!({"prompt": prompt.text, "tokens": prompt.ids, "count": prompt.ids.len()});
    Ok(json_response(StatusCode::OK, &object))
}
