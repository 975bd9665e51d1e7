//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use inference_core::{Feature, Generation, Prompt, TextModel};
use serde_json::json;

use super::chat_answer::{ChatAnswer, Said};
use super::options::{Asked, asked, constrain};
use super::template::{Conversation, conversation};
use super::{response_format, tables, tool_choice};
use crate::answer::{
    AnswerParser, Family, ToolChoice, answer_constraint_with, mark_id, tool_constraint_with,
};
use crate::answers::{Answer, Chunks, Head, collect};
use crate::body::{self, json_response};
use crate::error::{ApiError, Result};
use crate::fields;
use crate::reader::Reader;
use crate::run::{Run, clamp};
use crate::state::{Loaded, State, now};

/// What a request asks for.
struct Chat {
    conversation: Conversation,
    asked: Asked,
    /// Whether more than one call may be made.
    parallel: bool,
}

/// Answers a conversation.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    state.loaded()?;
    let (body, size) = body::object(&state, request).await?;
    let limits = &state.config.limits;
    let mut reader = fields::check(&[tables::SAMPLING, tables::CHAT], limits, body)?;
    let loaded = state.serve(reader.text("model")?.as_deref())?;
    let chat = read(&mut reader, &state, &loaded)?;
    reader.finish()?;
    let about = chat.asked.constrained_by;
    let refused = |error| ApiError::from(error).rename("constraint", about);
    let options = &chat.asked.options;
    options
        .validate()
        .and_then(|()| loaded.model.capabilities().check_generate(options))
        .map_err(refused)?;

    let permits = state.admission.take(chat.asked.n, "n")?;
    let (stream, include_usage, n) = (chat.asked.stream, chat.asked.include_usage, chat.asked.n);
    let (logprobs, parallel) = (chat.asked.options.logprobs, chat.parallel);
    let (engine, owner) = (loaded.clone(), Arc::clone(&state));
    let work = move || {
        let (prompt, generations) = start(&engine, &chat)?;
        // Made here, so that it holds its permits and is counted even where the client has left.
        let run = Run::new(&owner, generations, permits, n).constrained_by(about);
        Ok((prompt, run, chat.conversation.tools))
    };
    let started = state.text_work(size, work).await;
    let started = started.map_err(|error| error.rename("constraint", about).or_about("messages"));
    let (prompt, run, tools) = started?;

    let answers: Vec<_> = (0..n)
        .map(|_| ChatAnswer {
            parser: AnswerParser::with_schemas(loaded.family, &prompt, &tools.callable),
            logprobs: logprobs.then(|| Arc::clone(&loaded.model)),
            parallel,
            call_id: state.id("call_"),
            said: Said::default(),
        })
        .collect();
    let mut head = Head {
        id: state.id("chatcmpl-"),
        object: "chat.completion",
        created: now(),
        model: state.config.model.clone(),
    };
    if stream {
        head.object = "chat.completion.chunk";
        let chunks = Chunks::new(run, answers, head, include_usage);
        return chunks.respond(state.config.timeouts.keep_alive).await;
    }
    let (answers, usage) = collect(run, answers).await?;
    let choice = |(index, answer): (usize, ChatAnswer)| {
        let mut choice = answer.whole();
        choice["index"] = json!(index);
        choice
    };
    let mut object = head.object(answers.into_iter().enumerate().map(choice).collect());
    object["usage"] = usage.to_json();
    Ok(json_response(StatusCode::OK, &object))
}

/// Renders the conversation and starts a generation for each answer.
fn start(loaded: &Loaded, chat: &Chat) -> Result<(String, Vec<Generation>)> {
    let (model, asked) = (loaded.model.as_ref(), &chat.asked);
    let prompt = model.render_chat(&chat.conversation.messages, &chat.conversation.chat)?;
    // What holds for the answer shall not hold for the thoughts before it.
    let constraint = asked.options.constraint.clone().map(|constraint| {
        let id = |mark: &str| mark_id(model, mark);
        answer_constraint_with(loaded.family, &prompt.text, constraint, &id)
    });
    let tokens = prompt.ids.len();
    let ids = Prompt::Ids(prompt.ids);
    let generate = |index| {
        let mut options = asked.options_of(index);
        options.constraint = constraint.clone();
        clamp(&mut options, model, tokens);
        Ok(model.generate(&ids, &options)?)
    };
    let generations = (0..asked.n).map(generate).collect::<Result<_>>()?;
    Ok((prompt.text, generations))
}

fn read(reader: &mut Reader, state: &State, loaded: &Loaded) -> Result<Chat> {
    let limits = &state.config.limits;
    let mut asked = asked(reader, limits)?;
    let newer = reader.count("max_completion_tokens")?;
    let older = reader.count("max_tokens")?;
    if newer.is_some() && older.is_some() && newer != older {
        let reason = "differs from `max_completion_tokens`, whose older name it is";
        return Err(ApiError::value("max_tokens", reason));
    }
    asked.options.max_tokens = newer.or(older);
    asked.options.logprobs = reader.bool("logprobs")?.unwrap_or(false);
    asked.options.top_logprobs = reader.count("top_logprobs")?.unwrap_or(0);
    if asked.options.top_logprobs > 0 && !asked.options.logprobs {
        return Err(ApiError::value("top_logprobs", "says nothing without `logprobs`"));
    }
    if let Some(constraint) = response_format::constraint(reader, limits)? {
        let by = &mut asked.constrained_by;
        constrain(&mut asked.options, by, "response_format", constraint)?;
    }

    let items = reader.list("messages")?.unwrap_or_default();
    let mut conversation = conversation(reader, items)?;
    let effort = reader.text("reasoning_effort")?;
    if let Some(effort) = effort {
        add_variables(&mut conversation, loaded.effort.variables(&effort)?)?;
    }
    let parallel = reader.bool("parallel_tool_calls")?.unwrap_or(true);
    let choice = tool_choice::choice(reader, &conversation.tools)?;
    if choice == ToolChoice::None {
        // The model is not told of tools that it must not call.
        conversation.chat.tools.clear();
        conversation.tools.callable.clear();
    }
    let tools = &conversation.tools.callable;
    if loaded.family == Family::Plain && !tools.is_empty() {
        let reason = "the model's chat template knows no tool calls, or writes them in a way that \
                      is not known";
        return Err(ApiError::unsupported("tools", reason));
    }
    tool_choice::check_schemas(tools, &choice)?;
    let by_choice = matches!(choice, ToolChoice::Required | ToolChoice::Named(_));
    let field = if by_choice { "tool_choice" } else { "tools" };
    let id = |mark: &str| mark_id(loaded.model.as_ref(), mark);
    let held = tool_constraint_with(loaded.family, tools, &choice, parallel, &id)
        .map_err(|reason| ApiError::unsupported(field, reason))?;
    if let Some(constraint) = held {
        constrain(&mut asked.options, &mut asked.constrained_by, field, constraint)?;
    }
    let marks = loaded.family != Family::Plain && shows_marks(loaded.model.as_ref());
    asked.options.special_tokens |= marks;
    Ok(Chat { conversation, asked, parallel })
}

/// Whether the text can show the special tokens that mark tool calls and reasoning.
fn shows_marks(model: &dyn TextModel) -> bool {
    model.capabilities().require(Feature::SpecialTokens).is_ok()
}

fn add_variables(
    conversation: &mut Conversation,
    variables: Vec<(String, inference_core::Value)>,
) -> Result<()> {
    let given = &mut conversation.chat.template_kwargs;
    for (name, value) in variables {
        if given.iter().any(|(other, earlier)| *other == name && *earlier != value) {
            let reason = format!("contradicts `chat_template_kwargs.{name}`");
            return Err(ApiError::value("reasoning_effort", reason));
        }
        given.retain(|(other, _)| *other != name);
        given.push((name, value));
    }
    Ok(())
}
