//! `POST …/models/{model}:generateContent`, `:streamGenerateContent` and `:countTokens`.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use inference_core::{ChatOptions, Role};
use serde_json::{Value as Json, json};

use super::action::{Action, Alt};
use super::config::{Config, config};
use super::contents::messages;
use super::names::in_camel_case;
use super::tables::{CONVERSATION, COUNT, CREATE};
use super::tools::{calls, tools};
use super::wire::{ContentWire, Head};
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::fields::table::{Field, check, check_in};
use crate::http::body;
use crate::http::response::json_response;
use crate::pool::lease::Lease;
use crate::pool::loaded::Loaded;
use crate::protocol::conversation::Conversation;
use crate::protocol::generate::{Asked, Delivery, Started, generate};
use crate::protocol::openai::template::is_open;
use crate::protocol::pictures::Pictures;
use crate::protocol::request::loaded_for;
use crate::protocol::turns::{conversation_tokens, with_turns_as_taken};
use crate::protocol::waiting::Waiting;
use crate::protocol::wire::Form;
use crate::run::state::State;

/// Has the model `name` do `action` for `request`.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn act(
    state: &Arc<State>,
    (name, action): (&str, Action),
    request: Request,
) -> Result<Response> {
    let form = match Alt::of(request.uri().query())? {
        Alt::Events => Form::Events,
        Alt::Json => Form::Array,
    };
    match action {
        Action::Generate => answer(state, name, request, (Delivery::Whole, form)).await,
        Action::Stream => answer(state, name, request, (Delivery::Stream, form)).await,
        Action::Count => count(state, name, request).await,
    }
}

/// A request whose fields fit its tables.
struct Ask {
    reader: Reader,
    loaded: Lease<Loaded>,
    bytes: usize,
}

async fn ask(
    state: &State,
    name: &str,
    request: Request,
    tables: &[&[Field]],
    waits_in_events: bool,
) -> Result<Ask> {
    state.pool.check_open()?;
    let waiting = request.extensions().get::<Waiting>().cloned().unwrap_or_default();
    let (body, bytes) = body::object(state, request).await?;
    let mut reader = check(tables, &state.config.limits, in_camel_case("", body)?)?;
    check_model(&mut reader, name)?;
    let loaded = loaded_for(state, &waiting, Some(name), waits_in_events).await?;
    Ok(Ask { reader, loaded, bytes })
}

/// Takes `model`, which says the name of the address again.
fn check_model(reader: &mut Reader, name: &str) -> Result<()> {
    match reader.text("model")? {
        Some(model) if model.strip_prefix("models/").unwrap_or(&model) != name => {
            let reason = format!("differs from `{name}`, the model of the address");
            Err(ApiError::value(reader.path("model"), reason))
        }
        _ => Ok(()),
    }
}

async fn answer(
    state: &Arc<State>,
    name: &str,
    request: Request,
    (delivery, form): (Delivery, Form),
) -> Result<Response> {
    let in_events = delivery == Delivery::Stream && form == Form::Events;
    let tables = &[CREATE, CONVERSATION];
    let Ask { mut reader, loaded, bytes } = ask(state, name, request, tables, in_events).await?;
    let (conversation, config) = read(&mut reader, state, &loaded)?;
    reader.finish()?;
    let Config { options, names, tells_thoughts } = config;
    let asked = Asked::one(options, delivery, names, "contents");
    let head = Head::new(state, loaded.name());
    generate(state, &loaded, asked, bytes, move |loaded, asked| {
        let (prompt, generations) = with_turns_as_taken(conversation, |conversation| {
            conversation.start(loaded, asked, usize::MAX)
        })?;
        let wire = ContentWire::new(head, form, prompt.ids.len(), tells_thoughts);
        Ok(Started { generations, wire })
    })
    .await
}

async fn count(state: &Arc<State>, name: &str, request: Request) -> Result<Response> {
    let tables = &[COUNT, CONVERSATION];
    let Ask { mut reader, loaded, bytes } = ask(state, name, request, tables, false).await?;
    if let Some(whole) = reader.object("generateContentRequest")? {
        let path = reader.path("generateContentRequest");
        reader.finish()?;
        let whole = in_camel_case(&path, whole)?;
        reader = check_in(&path, &[CREATE, CONVERSATION], &state.config.limits, whole)?;
        check_model(&mut reader, name)?;
    }
    let (conversation, _) = read(&mut reader, state, &loaded)?;
    reader.finish()?;
    let count = conversation_tokens(state, loaded, conversation, bytes).await;
    let count = count.map_err(|error| error.or_about("contents"))?;
    Ok(json_response(StatusCode::OK, &json!({"totalTokens": count})))
}

/// Takes the fields of a conversation and its answer, but for the model.
fn read(reader: &mut Reader, state: &State, loaded: &Loaded) -> Result<(Conversation, Config)> {
    let pictures = Pictures::of(state, loaded.model.as_ref());
    let (system_path, path) = (reader.path("systemInstruction"), reader.path("contents"));
    let system = reader.take("systemInstruction").map(as_content);
    let contents = reader.take("contents");
    let contents = reader.need("contents", contents)?;
    let messages = messages((&system_path, system), (&path, contents), &pictures)?;
    let last = messages.last().filter(|last| last.role == Role::Assistant);
    if last.is_some_and(|last| !is_open(last)) {
        let reason =
            "the last turn is the model's, and has no text that an answer could go on with";
        return Err(ApiError::value(path, reason));
    }
    let continue_final_message = last.is_some();
    let mut tools = tools(reader)?;
    let calls = calls(reader, &mut tools)?;
    let chat =
        ChatOptions { tools: tools.definitions, continue_final_message, ..ChatOptions::default() };
    let mut conversation =
        Conversation { messages, chat, tools: tools.callable, ..Conversation::default() };
    let mut config = config(reader, &state.config.limits, loaded, &mut conversation)?;
    conversation.allow(&calls, loaded, &mut config.options, &mut config.names)?;
    Ok((conversation, config))
}

/// Instructions as a content: clients may send them as a text.
fn as_content(system: Json) -> Json {
    match system {
        Json::String(text) => json!({"parts": [{"text": text}]}),
        other => other,
    }
}
