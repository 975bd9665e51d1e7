//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::response::Response;
use inference_text::Effort;

use super::chat_wire::{ChatWire, Logprobs};
use super::head::Head;
use super::options::{Sampling, most_tokens, sampling};
use super::template::conversation;
use super::{foreign, response_format, tables, tool_choice};
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::pool::loaded::Loaded;
use crate::protocol::conversation::{Calls, Conversation, ToolFields, constrain};
use crate::protocol::generate::{Started, generate};
use crate::protocol::pictures::Pictures;
use crate::protocol::request::{Checked, checked};
use crate::protocol::thinking::{Thinking, level, switched};
use crate::run::state::State;

/// The fields that errors about tools name.
const TOOL_FIELDS: ToolFields =
    ToolFields { tools: "tools", choice: "tool_choice", schema: "function.parameters" };

/// Fields that bound the reasoning: llama.cpp's, Qwen's and vLLM's.
const BUDGETS: [&str; 3] = ["reasoning_budget", "thinking_budget", "thinking_token_budget"];

/// The fields of a request, read and checked.
struct Chat {
    conversation: Conversation,
    sampling: Sampling,
    /// The most calls of an answer.
    most_calls: usize,
}

/// Answers a conversation.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let of_others = [foreign::GENERATING, foreign::CHAT, foreign::OF_LLAMA];
    let tables = &[&[tables::SAMPLING, tables::CHAT][..], &of_others].concat();
    let Checked { mut reader, loaded, bytes } = checked(&state, request, tables).await?;
    let Chat { conversation, sampling, most_calls } = read(&mut reader, &state, &loaded)?;
    reader.finish()?;
    let Sampling { asked, usage, times } = sampling;
    let head = Head::new(state.id("chatcmpl-"), loaded.name(), usage).telling(times);
    let call_ids = (0..asked.per_prompt).map(|_| state.id("call_")).collect();
    let logprobs = if asked.options.logprobs { Logprobs::Told } else { Logprobs::Untold };
    let wire = ChatWire::new(head, call_ids, logprobs);
    generate(&state, &loaded, asked, bytes, move |loaded, asked| {
        let (_, generations) = conversation.start(loaded, asked, most_calls)?;
        Ok(Started { generations, wire })
    })
    .await
}

fn read(reader: &mut Reader, state: &State, loaded: &Loaded) -> Result<Chat> {
    let limits = &state.config.limits;
    let mut sampling = sampling(reader, limits)?;
    let asked = &mut sampling.asked;
    let newer = most_tokens(reader, "max_completion_tokens")?;
    let older = most_tokens(reader, "max_tokens")?;
    if newer.is_some() && older.is_some() && newer != older {
        let reason = "differs from `max_completion_tokens`, whose older name it is";
        return Err(ApiError::value("max_tokens", reason));
    }
    asked.options.max_tokens = newer.or(older).flatten();
    asked.options.logprobs = reader.bool("logprobs")?.unwrap_or(false);
    asked.options.top_logprobs = reader.count("top_logprobs")?.unwrap_or(0);
    if asked.options.top_logprobs > 0 && !asked.options.logprobs {
        return Err(ApiError::value("top_logprobs", "says nothing without `logprobs`"));
    }
    if let Some(constraint) = response_format::constraint(reader, limits)? {
        constrain(&mut asked.options, &mut asked.names, "response_format", constraint)?;
    }

    let items = reader.list("messages")?.unwrap_or_default();
    let pictures = Pictures::of(state, loaded.model.as_ref());
    let mut conversation = conversation(reader, items, &pictures)?;
    for (field, thinking) in thinking(reader, loaded.effort)? {
        conversation.think(thinking, (field, "chat_template_kwargs"), loaded)?;
    }
    let parallel = reader.bool("parallel_tool_calls")?.unwrap_or(true);
    let most_calls = if parallel { usize::MAX } else { 1 };
    let choice = tool_choice::choice(reader)?;
    let calls = Calls { choice, most: most_calls, fields: TOOL_FIELDS };
    conversation.allow(&calls, loaded, &mut asked.options, &mut asked.names)?;
    Ok(Chat { conversation, sampling, most_calls })
}

/// The reasoning that each field asks for.
fn thinking(reader: &mut Reader, effort: Effort) -> Result<Vec<(&'static str, Thinking)>> {
    let mut asked = Vec::new();
    if let Some(given) = reader.text("reasoning_effort")? {
        asked.push(("reasoning_effort", level(effort, &given, "reasoning_effort")?));
    }
    if let Some(on) = reader.bool("enable_thinking")? {
        asked.push(("enable_thinking", switched(effort, on, "enable_thinking")?));
    }
    for field in BUDGETS {
        asked.extend(budget(reader, field)?.map(|thinking| (field, thinking)));
    }
    if let Some(given) = reader.take("thinking") {
        let mut given = Reader::new("thinking", given)?;
        let kind = given.text("type")?;
        let thinking = match given.need("type", kind)?.as_str() {
            "enabled" => switched(effort, true, "thinking.type")?,
            "disabled" => switched(effort, false, "thinking.type")?,
            "adaptive" | "auto" => Thinking::default(),
            other => {
                let reason = format!("`{other}` is not one of enabled, adaptive, auto, disabled");
                return Err(ApiError::value("thinking.type", reason));
            }
        };
        asked.push(("thinking", thinking));
        let bound = budget(&mut given, "budget_tokens")?;
        asked.extend(bound.map(|thinking| ("thinking.budget_tokens", thinking)));
        given.finish()?;
    }
    if let Some(given) = reader.take("reasoning") {
        let mut given = Reader::new("reasoning", given)?;
        if let Some(on) = given.bool("enabled")? {
            asked.push(("reasoning.enabled", switched(effort, on, "reasoning.enabled")?));
        }
        if let Some(given) = given.text("effort")? {
            asked.push(("reasoning.effort", level(effort, &given, "reasoning.effort")?));
        }
        let bound = budget(&mut given, "max_tokens")?;
        asked.extend(bound.map(|thinking| ("reasoning.max_tokens", thinking)));
        given.hints(&["summary"], "thoughts are told as they are")?;
        given.finish()?;
    }
    Ok(asked)
}

/// The bound that the field `name` sets; below 0 there is none.
fn budget(reader: &mut Reader, name: &str) -> Result<Option<Thinking>> {
    let tokens = reader.integer(name)?.and_then(|tokens| usize::try_from(tokens).ok());
    Ok(tokens.map(|tokens| Thinking { budget: Some(tokens), ..Thinking::default() }))
}
