//! Conversations, in no protocol's words: messages, tools, and how they become generations.

use std::mem::take;
use std::sync::Arc;

use inference_core::{
    ChatOptions, Constraint, Feature, GenerateOptions, Generation, Message, ReasoningBudget,
    RenderedPrompt, TextModel, Value,
};
use inference_text::Effort;
use inference_text::answer::{
    AnswerParser, Family, Tool, ToolChoice, answer_constraint_with, answer_or_calls,
    bounded_reasoning, mark_id, tool_constraint_with,
};
use serde_json::{Map, Value as Json, json};

use super::generate::Asked;
use super::generic_tools;
use super::instructions::{instructions_first, marked};
use super::thinking::Thinking;
use crate::config::Limits;
use crate::error::{ApiError, Names, Result};
use crate::fields::told::take_hint;
use crate::pool::loaded::Loaded;
use crate::run::reading::Reading;

/// The fields by which protocols give an answer's format.
const FORMATS: [&str; 7] = [
    "response_format",
    "text.format",
    "format",
    "output_config.format",
    "generationConfig.responseSchema",
    "generationConfig.responseJsonSchema",
    "generationConfig.responseMimeType",
];

/// A conversation that is to be answered.
#[derive(Debug, Default)]
pub struct Conversation {
    /// The messages.
    pub messages: Vec<Message>,
    /// The template's options, with the tools' definitions.
    pub chat: ChatOptions,
    /// The tools as answers are read with and held to, in the order of their definitions.
    pub tools: Vec<Tool>,
    /// The most tokens of reasoning.
    pub budget: Option<usize>,
    /// The reasoning is asked for, or not wanted.
    pub thinks: Option<bool>,
}

/// The fields of a protocol's request that tools come from, for errors.
#[derive(Clone, Copy, Debug)]
pub struct ToolFields {
    /// The field of the tools.
    pub tools: &'static str,
    /// The field that chooses among them.
    pub choice: &'static str,
    /// The path within a tool of the schema of its arguments.
    pub schema: &'static str,
}

/// The calls that an answer may have.
#[derive(Clone, Debug)]
pub struct Calls {
    /// Which tools.
    pub choice: ToolChoice,
    /// The most calls of an answer.
    pub most: usize,
    /// The names of the request's fields.
    pub fields: ToolFields,
}

impl Conversation {
    /// Sets variables of the template for the field `field`.
    ///
    /// # Errors
    /// The request has set one of them to another value, in the field `others`.
    pub fn set_variables(
        &mut self,
        variables: Vec<(String, Value)>,
        field: &str,
        others: &str,
    ) -> Result<()> {
        let given = &mut self.chat.template_kwargs;
        for (name, value) in variables {
            if given.iter().any(|(other, earlier)| *other == name && *earlier != value) {
                let reason = format!("contradicts `{others}.{name}`");
                return Err(ApiError::value(field, reason));
            }
            given.retain(|(other, _)| *other != name);
            given.push((name, value));
        }
        Ok(())
    }

    /// Has an answer of `loaded` think as the field `field` asks.
    ///
    /// # Errors
    /// The request has set one of the template's variables to another value, in the field `others`;
    /// or the model is not to think, and its reasoning cannot be ended.
    pub fn think(
        &mut self,
        thinking: Thinking,
        (field, others): (&str, &str),
        loaded: &Loaded,
    ) -> Result<()> {
        let Thinking { variables, budget, is_on } = thinking;
        self.set_variables(variables, field, others)?;
        if is_on.is_some_and(|on| self.thinks.is_some_and(|other| other != on)) {
            return Err(ApiError::value(field, "contradicts what another field says of thinking"));
        }
        self.thinks = is_on.or(self.thinks);
        let Some(tokens) = budget else { return Ok(()) };
        let model = loaded.model.as_ref();
        let marks = bounded_reasoning(loaded.family, "", &|mark| mark_id(model, mark));
        if marks.is_some() && model.capabilities().require(Feature::Constraint).is_ok() {
            self.budget = Some(self.budget.map_or(tokens, |other| other.min(tokens)));
            return Ok(());
        }
        let reason = "the model has no tokens by which its reasoning could be ended";
        match loaded.effort {
            // It does not think, and so it keeps to any bound.
            Effort::Unknown if tokens == 0 => Ok(()),
            _ if tokens == 0 => Err(ApiError::unsupported(field, reason)),
            _ => take_hint(field, reason),
        }
    }

    /// Lets an answer of `loaded` make `calls`: takes out what it must not call, holds it to the
    /// schemas that it must keep to, and has the marks of calls shown. An answer that was given a
    /// format may be calls in its place.
    ///
    /// # Errors
    /// The model calls no tools, there is none to be called, or a schema cannot be kept.
    pub fn allow(
        &mut self,
        calls: &Calls,
        loaded: &Loaded,
        options: &mut GenerateOptions,
        names: &mut Names,
    ) -> Result<()> {
        let Calls { choice, most, fields } = calls;
        check_choice(&self.tools, choice, fields.choice)?;
        if *choice == ToolChoice::None {
            // The model is not told of tools that it must not call.
            self.chat.tools.clear();
            self.tools.clear();
        }
        let model = loaded.model.as_ref();
        if self.family(loaded) == Family::Plain && !self.tools.is_empty() {
            let reason = "the model's chat template knows no tool calls, or writes them in a way \
                          that is not known; `ml serve --tools generic` gives tools to every model";
            return Err(ApiError::unsupported(fields.tools, reason));
        }
        let by_choice = matches!(choice, ToolChoice::Required | ToolChoice::Named(_));
        if by_choice && names.field("constraint").is_some_and(|field| FORMATS.contains(&field)) {
            // An answer of calls alone has no text that could have the format.
            options.constraint = None;
            names.remove("constraint");
        }
        let is_free = *choice == ToolChoice::Auto && !self.tools.is_empty();
        let format = options.constraint.as_ref().filter(|_| is_free);
        check_schemas(&self.tools, calls, format.is_some())?;
        let field = if by_choice { fields.choice } else { fields.tools };
        let id = |mark: &str| mark_id(model, mark);
        let (family, parallel) = (self.family(loaded), *most > 1);
        let is_told =
            loaded.tools_in.is_some() && model.capabilities().require(Feature::Constraint).is_ok();
        let in_form = (is_free && is_told).then(|| generic_tools::held(&self.tools));
        let tools = in_form.as_ref().unwrap_or(&self.tools);
        let refused = |reason| ApiError::unsupported(field, reason);
        // The answer has its format, unless it is a call.
        let either = format.map(|format| answer_or_calls(family, tools, parallel, format, &id));
        if let Some(either) = either.transpose().map_err(refused)?.flatten() {
            options.constraint = Some(either);
        } else if let Some(held) =
            tool_constraint_with(family, tools, choice, parallel, &id).map_err(refused)?
        {
            constrain(options, names, field, held)?;
        }
        options.special_tokens |= family != Family::Plain && shows_marks(model);
        if let Some(place) = loaded.tools_in {
            let (tools, messages) = (take(&mut self.chat.tools), take(&mut self.messages));
            self.messages = generic_tools::written(messages, &tools, place, parallel);
        }
        Ok(())
    }

    /// How an answer of `loaded` writes reasoning and calls.
    fn family(&self, loaded: &Loaded) -> Family {
        match loaded.tools_in {
            Some(_) if !self.tools.is_empty() => generic_tools::FAMILY,
            _ => loaded.family,
        }
    }

    /// Renders it with the model's template. Where that leaves out instructions that are not the
    /// first message, all of them are moved to the beginning.
    ///
    /// # Errors
    /// The template's and the tokenizer's.
    pub fn rendered(&self, model: &dyn TextModel) -> Result<RenderedPrompt> {
        if let Some((marked, marks)) = marked(&self.messages)
            && let Ok(prompt) = model.render_chat(&marked, &self.chat)
            && !marks.are_in(&prompt.text)
        {
            let messages = instructions_first(self.messages.clone());
            return Ok(model.render_chat(&messages, &self.chat)?);
        }
        Ok(model.render_chat(&self.messages, &self.chat)?)
    }

    /// Renders the conversation and starts a generation for each answer, of `most_calls` calls at
    /// most.
    ///
    /// # Errors
    /// The template's, the tokenizer's and the model's.
    pub fn start(
        &self,
        loaded: &Loaded,
        asked: &Asked,
        most_calls: usize,
    ) -> Result<(RenderedPrompt, Vec<(Generation, Reading)>)> {
        let (model, family) = (loaded.model.as_ref(), self.family(loaded));
        let prompt = self.rendered(model)?;
        asked.check_context(prompt.ids.len())?;
        // What holds for the answer shall not hold for the thoughts before it.
        let constraint = asked.options.constraint.clone().map(|constraint| {
            let id = |mark: &str| mark_id(model, mark);
            answer_constraint_with(family, &prompt.text, constraint, &id)
        });
        let budget = self.budget.and_then(|tokens| {
            let marks = bounded_reasoning(family, &prompt.text, &|mark| mark_id(model, mark));
            marks.map(|marks| ReasoningBudget { marks, tokens })
        });
        let generate = |index| {
            let mut options = asked.options_of(index, model, prompt.ids.len());
            options.constraint = constraint.clone();
            options.reasoning_budget = budget.clone();
            let parser = AnswerParser::with_schemas(family, &prompt.text, &self.tools);
            let scores = asked.options.logprobs.then(|| Arc::clone(&loaded.model));
            let reading = Reading::of_message(parser, scores, most_calls);
            Ok((model.generate_answer(&prompt, &self.chat, &options)?, reading))
        };
        let started = (0..asked.per_prompt).map(generate).collect::<Result<_>>()?;
        Ok((prompt, started))
    }
}

/// Sets the one constraint that an answer can have, for the field `field`.
///
/// # Errors
/// Another field has set one.
pub fn constrain(
    options: &mut GenerateOptions,
    names: &mut Names,
    field: &'static str,
    constraint: Constraint,
) -> Result<()> {
    if options.constraint.is_some() {
        let other = names.field("constraint").unwrap_or("constraint");
        return Err(ApiError::value(field, format!("cannot be combined with `{other}`")));
    }
    options.constraint = Some(constraint);
    names.add("constraint", field);
    Ok(())
}

/// Checks the size of a schema, expression or grammar of `bytes`.
///
/// # Errors
/// It is too large.
pub fn bounded(field: &str, bytes: usize, limits: &Limits) -> Result<()> {
    if bytes <= limits.schema_bytes {
        return Ok(());
    }
    let reason = format!("has {bytes} bytes, at most {} are allowed", limits.schema_bytes);
    Err(ApiError::value(field, reason))
}

/// Returns true when the text can have the special tokens that mark tool calls and reasoning.
fn shows_marks(model: &dyn TextModel) -> bool {
    model.capabilities().require(Feature::SpecialTokens).is_ok()
}

/// Checks that the tools which `choice`, the value of `field`, wants to be called exist.
fn check_choice(tools: &[Tool], choice: &ToolChoice, field: &str) -> Result<()> {
    match choice {
        ToolChoice::Required | ToolChoice::Named(_) if tools.is_empty() => {
            Err(ApiError::value(field, "there are no `tools` to choose from"))
        }
        ToolChoice::Named(name) if !tools.iter().any(|tool| tool.name == *name) => {
            Err(ApiError::value(field, format!("there is no tool `{name}`")))
        }
        _ => Ok(()),
    }
}

/// Checks that the schema of each tool to which the answer is held allows an object, as a call's
/// arguments are.
fn check_schemas(tools: &[Tool], calls: &Calls, has_format: bool) -> Result<()> {
    let held = |tool: &Tool| match &calls.choice {
        ToolChoice::None => false,
        // One strict tool makes a grammar of all of them, and so does a format of the answer.
        ToolChoice::Auto => has_format || tools.iter().any(|tool| tool.strict),
        ToolChoice::Required => true,
        ToolChoice::Named(name) => tool.name == *name,
    };
    for (index, tool) in tools.iter().enumerate().filter(|(_, tool)| held(tool)) {
        if let Some(kind) = tool.parameters.get("type").filter(|kind| *kind != "object") {
            let ToolFields { tools, schema, .. } = calls.fields;
            let reason = format!(
                "expected the schema of an object, since the answer is held to it; found the \
                 type {kind}"
            );
            return Err(ApiError::value(format!("{tools}[{index}].{schema}"), reason));
        }
    }
    Ok(())
}

/// The schema of a call's arguments. Where it allows an object among other types, the object is
/// left.
pub fn arguments_schema(mut schema: Map<String, Json>) -> Json {
    let types = schema.get("type").and_then(Json::as_array);
    if types.is_some_and(|types| types.contains(&json!("object"))) {
        schema.insert("type".to_owned(), json!("object"));
    }
    Json::Object(schema)
}
