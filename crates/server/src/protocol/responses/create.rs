//! `POST /v1/responses` and `POST /v1/responses/input_tokens`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use inference_core::{ChatOptions, GenerateOptions};
use serde_json::json;

use super::echo::Echo;
use super::input::{Input, input};
use super::output::{Thoughts, include, reasoning, text};
use super::store::{Item, Store};
use super::stored::PREFIX;
use super::tables;
use super::tool_choice::choice;
use super::tools::{Known, Tools, tools};
use super::wire::{Form, ResponseWire};
use crate::error::{ApiError, Names, Result};
use crate::fields::reader::Reader;
use crate::fields::told::take_hint;
use crate::http::response::json_response;
use crate::pool::loaded::Loaded;
use crate::protocol::conversation::{Calls, Conversation, ToolFields, constrain};
use crate::protocol::generate::{Asked, Delivery, Started, generate};
use crate::protocol::openai::options::progress;
use crate::protocol::pictures::Pictures;
use crate::protocol::request::{Checked, checked};
use crate::protocol::timings::Times;
use crate::protocol::turns::{conversation_tokens, with_turns_as_taken};
use crate::run::state::State;

/// The fields that errors about tools name.
const TOOL_FIELDS: ToolFields =
    ToolFields { tools: "tools", choice: "tool_choice", schema: "parameters" };

/// The request's fields for options of the contract that have other names.
const NAMES: &[(&str, &str)] = &[("max_tokens", "max_output_tokens")];

/// The fields of a request, read and checked.
struct Asks {
    conversation: Conversation,
    items: Vec<Arc<Item>>,
    known: Known,
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
pub async fn create(
    Shared(state): Shared<Arc<State>>,
    Extension(store): Extension<Arc<Store>>,
    request: Request,
) -> Result<Response> {
    let tables = &[tables::CONVERSATION, tables::CREATE];
    let Checked { mut reader, loaded, bytes } = checked(&state, request, tables).await?;
    let stores = stores(&mut reader, &store)?;
    let echo = Echo::new(&reader, state.id(PREFIX), loaded.name().to_owned(), stores);
    for name in ["user", "safety_identifier", "prompt_cache_key", "metadata"] {
        // The response tells them again, and they ask for nothing else.
        reader.take(name);
    }
    let mut asks = read(&mut reader, &state, &loaded, &store)?;
    let include = include(&mut reader)?;
    asks.options = GenerateOptions {
        max_tokens: reader.count("max_output_tokens")?,
        temperature: reader.number("temperature")?,
        top_p: reader.number("top_p")?,
        logprobs: include.logprobs,
        top_logprobs: reader.count("top_logprobs")?.unwrap_or(0),
        ..asks.options
    };
    if asks.options.top_logprobs > 0 && !include.logprobs {
        let reason = "says nothing without `include` of `message.output_text.logprobs`";
        return Err(ApiError::value("top_logprobs", reason));
    }
    let delivery = delivery(&mut reader)?;
    let (tells_progress, times) = (progress(&mut reader, delivery)?, Times::of(&mut reader)?);
    reader.finish()?;
    let Asks { conversation, items, known, options, names, thoughts, most_calls } = asks;
    let asked = Asked { tells_progress, ..Asked::one(options, delivery, names, "input") };
    let keep = stores.then_some((store, items));
    let form = Form { echo, known, thoughts, include, salt: state.id(""), times, keep };
    generate(&state, &loaded, asked, bytes, move |loaded, asked| {
        let (_, generations) = with_turns_as_taken(conversation, |conversation| {
            conversation.start(loaded, asked, most_calls)
        })?;
        Ok(Started { generations, wire: ResponseWire::new(form) })
    })
    .await
}

/// How many tokens a conversation has.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn count(
    Shared(state): Shared<Arc<State>>,
    Extension(store): Extension<Arc<Store>>,
    request: Request,
) -> Result<Response> {
    let tables = &[tables::CONVERSATION, tables::COUNT];
    let Checked { mut reader, loaded, bytes } = checked(&state, request, tables).await?;
    let conversation = read(&mut reader, &state, &loaded, &store)?.conversation;
    reader.finish()?;
    let count = conversation_tokens(&state, loaded, conversation, bytes).await;
    let count = count.map_err(|error| error.or_about("input"))?;
    let count = json!({"object": "response.input_tokens", "input_tokens": count});
    Ok(json_response(StatusCode::OK, &count))
}

/// Returns true when the response is to be kept, by the field `store`.
fn stores(reader: &mut Reader, store: &Store) -> Result<bool> {
    match reader.bool("store")? {
        Some(true) if !store.keeps() => {
            Err(ApiError::unsupported("store", "this server keeps no responses (see --max-stored)"))
        }
        given => Ok(given.unwrap_or(true) && store.keeps()),
    }
}

fn delivery(reader: &mut Reader) -> Result<Delivery> {
    let delivery = Delivery::of(reader)?;
    let Some(options) = reader.take("stream_options") else { return Ok(delivery) };
    let mut options = Reader::new("stream_options", options)?;
    options.hints(&["include_obfuscation"], "events are sent as they are")?;
    options.finish()?;
    if delivery == Delivery::Whole {
        take_hint("stream_options", "says nothing without `stream`")?;
    }
    Ok(delivery)
}

/// Takes the fields of [`CONVERSATION`](tables::CONVERSATION), but for the model.
fn read(reader: &mut Reader, state: &State, loaded: &Loaded, store: &Store) -> Result<Asks> {
    let before = match reader.text("previous_response_id")? {
        None => Vec::new(),
        Some(id) => match store.get(&id) {
            Some(stored) => stored.context(),
            None => {
                let reason = format!("there is no stored response `{id}`, or not any more");
                return Err(ApiError::value("previous_response_id", reason));
            }
        },
    };
    let instructions = reader.text("instructions")?;
    let given = reader.take("input");
    let new_id = |prefix: &str| state.id(prefix);
    let pictures = Pictures::of(state, loaded.model.as_ref());
    let known = (store, &pictures);
    let Input { messages, items } = input(instructions.as_deref(), before, given, known, new_id)?;
    let mut tools = tools(reader.list("tools")?.unwrap_or_default())?;
    let choice = choice(reader, &mut tools)?;
    let Tools { definitions, callable, known } = tools;
    let chat = ChatOptions { tools: definitions, ..ChatOptions::default() };
    let mut conversation =
        Conversation { messages, chat, tools: callable, ..Conversation::default() };
    let thoughts = reasoning(reader, loaded, &mut conversation)?;
    let (mut options, mut names) = (GenerateOptions::default(), Names::new(NAMES));
    if let Some(constraint) = text(reader, &state.config.limits)? {
        constrain(&mut options, &mut names, "text.format", constraint)?;
    }
    let parallel = reader.bool("parallel_tool_calls")?.unwrap_or(true);
    let most_calls = if parallel { usize::MAX } else { 1 };
    let calls = Calls { choice, most: most_calls, fields: TOOL_FIELDS };
    conversation.allow(&calls, loaded, &mut options, &mut names)?;
    Ok(Asks { conversation, items, known, options, names, thoughts, most_calls })
}
