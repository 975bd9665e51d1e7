//! `POST /v1/messages` and `POST /v1/messages/count_tokens`.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use inference_core::{ChatOptions, GenerateOptions, Role};
use serde_json::json;

use super::output::{Output, Thoughts, output};
use super::tables;
use super::tools::{calls, tools};
use super::turns::messages;
use super::wire::{Head, MessageWire};
use crate::error::{ApiError, Names, Result};
use crate::fields::bounds::check_stops;
use crate::fields::reader::Reader;
use crate::http::response::json_response;
use crate::pool::loaded::Loaded;
use crate::protocol::conversation::{Conversation, constrain};
use crate::protocol::generate::{Asked, Delivery, Started, generate};
use crate::protocol::openai::template::is_open;
use crate::protocol::pictures::Pictures;
use crate::protocol::request::{Checked, checked};
use crate::protocol::turns::{conversation_tokens, with_turns_as_taken};
use crate::run::state::State;

/// The versions of the protocol that clients may name.
///
/// An answer is written alike in all of them. 2026-10-21 has no `temperature`, `top_p` and `top_k`,
/// which are honoured here in each version. It refuses documents in an assistant's turns and
/// citations in a user's, which are refused here in each version.
const VERSIONS: [&str; 3] = ["2026-10-21", "2023-06-01", "2023-01-01"];

/// The request's fields for options of the contract that have other names.
const NAMES: &[(&str, &str)] = &[("stop", "stop_sequences")];

/// The fields of a request, read and checked.
struct Asks {
    conversation: Conversation,
    options: GenerateOptions,
    names: Names,
    thoughts: Thoughts,
    /// The most calls of an answer.
    most_calls: usize,
}

/// Answers a conversation.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    check_version(request.headers())?;
    let tables = &[tables::CONVERSATION, tables::CREATE];
    let Checked { mut reader, loaded, bytes } = checked(&state, request, tables).await?;
    let delivery = Delivery::of(&mut reader)?;
    let mut asks = read(&mut reader, &state, &loaded)?;
    let limits = &state.config.limits;
    asks.options = GenerateOptions {
        max_tokens: reader.count("max_tokens")?,
        temperature: reader.number("temperature")?,
        top_p: reader.number("top_p")?,
        top_k: reader.count("top_k")?,
        stop: reader.texts("stop_sequences")?.unwrap_or_default(),
        ..asks.options
    };
    check_stops("stop_sequences", &asks.options.stop, limits.stop)?;
    reader.finish()?;
    let Asks { conversation, options, names, thoughts, most_calls } = asks;
    let asked = Asked::one(options, delivery, names, "messages");
    let head = Head::new(&state, loaded.name());
    generate(&state, &loaded, asked, bytes, move |loaded, asked| {
        let (prompt, generations) = with_turns_as_taken(conversation, |conversation| {
            conversation.start(loaded, asked, most_calls)
        })?;
        Ok(Started { generations, wire: MessageWire::new(head, prompt.ids.len(), thoughts) })
    })
    .await
}

/// How many tokens a conversation has.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn count_tokens(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    check_version(request.headers())?;
    let tables = &[tables::CONVERSATION];
    let Checked { mut reader, loaded, bytes } = checked(&state, request, tables).await?;
    let conversation = read(&mut reader, &state, &loaded)?.conversation;
    reader.finish()?;
    let count = conversation_tokens(&state, loaded, conversation, bytes).await;
    let count = count.map_err(|error| error.or_about("messages"))?;
    Ok(json_response(StatusCode::OK, &json!({"input_tokens": count})))
}

/// Takes the fields of [`CONVERSATION`](tables::CONVERSATION), but for the model.
fn read(reader: &mut Reader, state: &State, loaded: &Loaded) -> Result<Asks> {
    let system = reader.take("system");
    let items = reader.list("messages")?.unwrap_or_default();
    let pictures = Pictures::of(state, loaded.model.as_ref());
    let messages = messages(system, items, &pictures)?;
    let (definitions, tools) = tools(reader.list("tools")?.unwrap_or_default())?;
    let last = messages.last().filter(|last| last.role == Role::Assistant);
    if last.is_some_and(|last| !is_open(last)) {
        let reason =
            "the last turn is the assistant's, and has no text that an answer could go on with";
        return Err(ApiError::value("messages", reason));
    }
    let continue_final_message = last.is_some();
    let chat = ChatOptions { tools: definitions, continue_final_message, ..ChatOptions::default() };
    let mut conversation = Conversation { messages, chat, tools, ..Conversation::default() };
    let (mut options, mut names) = (GenerateOptions::default(), Names::new(NAMES));
    let Output { thoughts, constraint } =
        output(reader, &state.config.limits, loaded, &mut conversation)?;
    if let Some(constraint) = constraint {
        constrain(&mut options, &mut names, "output_config.format", constraint)?;
    }
    let calls = calls(reader)?;
    conversation.allow(&calls, loaded, &mut options, &mut names)?;
    Ok(Asks { conversation, options, names, thoughts, most_calls: calls.most })
}

/// Checks that the protocol's version, where the client names one, is known.
fn check_version(headers: &HeaderMap) -> Result<()> {
    match headers.get("anthropic-version") {
        Some(version) if !VERSIONS.iter().any(|known| version == *known) => {
            let known = VERSIONS.map(|version| format!("`{version}`")).join(", ");
            let message = format!("the header `anthropic-version` must be one of {known}");
            Err(ApiError::bad_request(message))
        }
        _ => Ok(()),
    }
}
