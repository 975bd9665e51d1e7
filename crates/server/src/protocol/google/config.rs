//! `generationConfig`: how an answer is made.

use inference_core::{Constraint, GenerateOptions};
use inference_text::json::to_value;
use serde_json::{Value as Json, json};

use super::names::{in_camel_case, reader as object};
use super::schema::json_schema;
use super::tables::GENERATION;
use crate::config::Limits;
use crate::error::{ApiError, Names, Result};
use crate::fields::bounds::check_stops;
use crate::fields::reader::Reader;
use crate::fields::table::check_in;
use crate::pool::loaded::Loaded;
use crate::protocol::conversation::{Conversation, bounded, constrain};
use crate::protocol::openai::structured::{one_of, schema_of};
use crate::protocol::thinking::{self, Thinking};

/// The request's fields for options of the contract.
const NAMES: &[(&str, &str)] = &[
    ("temperature", "generationConfig.temperature"),
    ("top_p", "generationConfig.topP"),
    ("top_k", "generationConfig.topK"),
    ("max_tokens", "generationConfig.maxOutputTokens"),
    ("stop", "generationConfig.stopSequences"),
    ("seed", "generationConfig.seed"),
    ("presence_penalty", "generationConfig.presencePenalty"),
    ("frequency_penalty", "generationConfig.frequencyPenalty"),
    ("logprobs", "generationConfig.responseLogprobs"),
    ("top_logprobs", "generationConfig.logprobs"),
];

/// The fields that give an answer's format.
const SCHEMA: &str = "generationConfig.responseSchema";
const JSON_SCHEMA: &str = "generationConfig.responseJsonSchema";
const MIME_TYPE: &str = "generationConfig.responseMimeType";

/// The fields of `generationConfig`, read.
#[derive(Debug)]
pub struct Config {
    /// How tokens are drawn.
    pub options: GenerateOptions,
    /// The request's fields, for errors.
    pub names: Names,
    /// Thoughts are told.
    pub tells_thoughts: bool,
}

/// Takes `generationConfig`, and tells the template of `conversation` how much to think.
///
/// # Errors
/// A field means nothing, or the model cannot do it.
pub fn config(
    reader: &mut Reader,
    limits: &Limits,
    loaded: &Loaded,
    conversation: &mut Conversation,
) -> Result<Config> {
    let path = reader.path("generationConfig");
    let given = in_camel_case(&path, reader.object("generationConfig")?.unwrap_or_default())?;
    let mut given = check_in(&path, &[GENERATION], limits, given)?;
    let mut names = Names::new(NAMES);
    let mut options = GenerateOptions {
        temperature: given.number("temperature")?,
        top_p: given.number("topP")?,
        top_k: given.count("topK")?,
        max_tokens: given.count("maxOutputTokens")?,
        stop: given.texts("stopSequences")?.unwrap_or_default(),
        // A negative seed is the same 64 bits.
        seed: given.integer("seed")?.map(|seed| seed as u64),
        presence_penalty: given.number("presencePenalty")?,
        frequency_penalty: given.number("frequencyPenalty")?,
        logprobs: given.bool("responseLogprobs")?.unwrap_or(false),
        top_logprobs: given.count("logprobs")?.unwrap_or(0),
        ..GenerateOptions::default()
    };
    check_stops("generationConfig.stopSequences", &options.stop, limits.stop)?;
    if options.top_logprobs > 0 && !options.logprobs {
        let reason = "says nothing without `responseLogprobs`";
        return Err(ApiError::value("generationConfig.logprobs", reason));
    }
    if let Some((field, constraint)) = format(&mut given, limits)? {
        constrain(&mut options, &mut names, field, constraint)?;
    }
    let tells_thoughts = think(&mut given, loaded, conversation)?;
    given.finish()?;
    Ok(Config { options, names, tells_thoughts })
}

/// The format of the answer, with the field that gives it.
fn format(given: &mut Reader, limits: &Limits) -> Result<Option<(&'static str, Constraint)>> {
    let mime_type = given.text("responseMimeType")?;
    let (of_google, plain) = (given.take("responseSchema"), given.take("responseJsonSchema"));
    let schema = match (of_google, plain) {
        (Some(_), Some(_)) => {
            let reason = "cannot be combined with `generationConfig.responseJsonSchema`";
            return Err(ApiError::value(SCHEMA, reason));
        }
        (Some(schema), None) => {
            bounded(SCHEMA, schema.to_string().len(), limits)?;
            Some((SCHEMA, json_schema(SCHEMA, schema)?))
        }
        (None, schema) => schema.map(|schema| (JSON_SCHEMA, schema)),
    };
    match (mime_type.as_deref(), schema) {
        (Some("text/x.enum"), schema) => {
            let schema = schema.unwrap_or((MIME_TYPE, json!({})));
            let choices = schema.1.get("enum").and_then(Json::as_array);
            let choices = choices.map(|choices| choices.iter().map(Json::as_str).collect());
            let Some(Some(choices)) = choices else {
                let reason = "`text/x.enum` needs a schema whose `enum` is an array of strings";
                return Err(ApiError::value(MIME_TYPE, reason));
            };
            let choices: Vec<&str> = choices;
            let choices: Vec<String> = choices.into_iter().map(str::to_owned).collect();
            Ok(Some((schema.0, one_of(schema.0, &choices, limits)?)))
        }
        (Some("text/plain"), Some((field, _))) => {
            let reason = format!("needs `{MIME_TYPE}` to be `application/json`");
            Err(ApiError::value(field, reason))
        }
        (_, Some((field, schema))) => Ok(Some((field, schema_of(field, schema, limits)?))),
        (Some("application/json"), None) => {
            let object = Constraint::JsonSchema(to_value(json!({"type": "object"})));
            Ok(Some((MIME_TYPE, object)))
        }
        (_, None) => Ok(None),
    }
}

/// Takes `thinkingConfig`. Returns true where thoughts are told.
fn think(given: &mut Reader, loaded: &Loaded, conversation: &mut Conversation) -> Result<bool> {
    const BUDGET: &str = "generationConfig.thinkingConfig.thinkingBudget";
    const LEVEL: &str = "generationConfig.thinkingConfig.thinkingLevel";
    let path = given.path("thinkingConfig");
    let Some(thinking) = given.take("thinkingConfig") else { return Ok(false) };
    let mut thinking = object(path, thinking)?;
    let tells = thinking.bool("includeThoughts")?.unwrap_or(false);
    let budget = thinking.integer("thinkingBudget")?;
    let level = thinking.text("thinkingLevel")?.map(|level| level.to_ascii_lowercase());
    thinking.finish()?;
    let level = level.filter(|level| level != "thinking_level_unspecified");
    let effort = loaded.effort;
    match (budget, level) {
        (Some(_), Some(_)) => {
            return Err(ApiError::value(LEVEL, format!("cannot be combined with `{BUDGET}`")));
        }
        // As much as the model thinks by itself.
        (None | Some(-1), None) => {}
        (Some(0), None) => {
            let off = thinking::switched(effort, false, BUDGET)?;
            conversation.think(off, (BUDGET, BUDGET), loaded)?;
        }
        (Some(budget), None) => {
            let Ok(budget) = usize::try_from(budget) else {
                return Err(ApiError::value(BUDGET, "expected a whole number from -1 on"));
            };
            let on = thinking::switched(effort, true, BUDGET)?;
            conversation.think(on, (BUDGET, BUDGET), loaded)?;
            let bound = Thinking { budget: Some(budget), ..Thinking::default() };
            conversation.think(bound, (BUDGET, BUDGET), loaded)?;
        }
        (None, Some(level)) => {
            if !["minimal", "low", "medium", "high"].contains(&level.as_str()) {
                let reason = format!("`{level}` is not one of minimal, low, medium, high");
                return Err(ApiError::value(LEVEL, reason));
            }
            let thinking = thinking::level(effort, &level, LEVEL)?;
            conversation.think(thinking, (LEVEL, LEVEL), loaded)?;
        }
    }
    Ok(tells)
}
