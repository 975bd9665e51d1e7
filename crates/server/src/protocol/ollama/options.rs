//! `options`, `format` and `think`.

use inference_core::{Constraint, GenerateOptions};
use inference_text::Effort;
use inference_text::json::to_value;
use serde_json::{Value as Json, json};

use super::tables;
use crate::config::Limits;
use crate::error::{ApiError, Names, Result};
use crate::fields::reader::{Reader, expected};
use crate::fields::table::check_in;
use crate::protocol::conversation::{bounded, constrain};
use crate::protocol::generate::{Asked, Delivery};
use crate::protocol::openai::options::{stop, window_of_penalties};
use crate::protocol::thinking::{Thinking, level, switched};

/// The request's fields for options of the contract.
const NAMES: &[(&str, &str)] = &[
    ("temperature", "options.temperature"),
    ("top_k", "options.top_k"),
    ("top_p", "options.top_p"),
    ("min_p", "options.min_p"),
    ("typical_p", "options.typical_p"),
    ("seed", "options.seed"),
    ("stop", "options.stop"),
    ("max_tokens", "options.num_predict"),
    ("repetition_penalty", "options.repeat_penalty"),
    ("presence_penalty", "options.presence_penalty"),
    ("frequency_penalty", "options.frequency_penalty"),
    ("penalty_window", "options.repeat_last_n"),
];

/// Takes the fields of [`GENERATING`](tables::GENERATING), but for `model`, `keep_alive` and
/// `think`. `text_field` holds the text.
///
/// # Errors
/// The first field that means nothing.
pub fn asked(reader: &mut Reader, limits: &Limits, text_field: &'static str) -> Result<Asked> {
    let given = reader.object("options")?.unwrap_or_default();
    let mut given = check_in("options", &[tables::OPTIONS], limits, given)?;
    let mut names = Names::new(NAMES);
    let mut options = GenerateOptions {
        temperature: given.number("temperature")?,
        top_k: given.integer("top_k")?.map(|most| usize::try_from(most).unwrap_or(0)),
        top_p: given.number("top_p")?,
        min_p: given.number("min_p")?,
        typical_p: given.number("typical_p")?,
        // A negative seed but -1 is the same 64 bits.
        seed: given.integer("seed")?.filter(|seed| *seed != -1).map(|seed| seed as u64),
        max_tokens: given.integer("num_predict")?.and_then(|most| usize::try_from(most).ok()),
        stop: stop(&mut given, limits)?,
        repetition_penalty: given.number("repeat_penalty")?,
        presence_penalty: given.number("presence_penalty")?,
        frequency_penalty: given.number("frequency_penalty")?,
        logprobs: reader.bool("logprobs")?.unwrap_or(false),
        top_logprobs: reader.count("top_logprobs")?.unwrap_or(0),
        ..GenerateOptions::default()
    };
    if let Some(window) = given.integer("repeat_last_n")? {
        window_of_penalties(&mut options, window)?;
    }
    let context = given.count("num_ctx")?;
    given.finish()?;
    if options.top_logprobs > 0 && !options.logprobs {
        return Err(ApiError::value("top_logprobs", "says nothing without `logprobs`"));
    }
    if let Some(constraint) = format(reader, limits)? {
        constrain(&mut options, &mut names, "format", constraint)?;
    }
    // Before the model is loaded, so that a request which only loads it is checked, too.
    options.validate().map_err(|error| ApiError::from(error).named(&names))?;
    // Ollama's answers are streams unless a request says otherwise.
    let streams = reader.bool("stream")?.unwrap_or(true);
    Ok(Asked {
        options,
        prompts: 1,
        per_prompt: 1,
        context,
        delivery: if streams { Delivery::Stream } else { Delivery::Whole },
        tells_progress: false,
        names,
        count_field: text_field,
        text_field,
    })
}

fn format(reader: &mut Reader, limits: &Limits) -> Result<Option<Constraint>> {
    let schema = match reader.take("format") {
        None => return Ok(None),
        Some(Json::String(name)) if name.is_empty() => return Ok(None),
        Some(Json::String(name)) if name == "json" => json!({"type": "object"}),
        Some(schema @ Json::Object(_)) => schema,
        Some(other) => return Err(expected("format", "`json` or a JSON schema", &other)),
    };
    bounded("format", schema.to_string().len(), limits)?;
    Ok(Some(Constraint::JsonSchema(to_value(schema))))
}

/// The template's variables for the field `think`.
///
/// # Errors
/// It means nothing, or the template does not know of it.
pub fn think(reader: &mut Reader, effort: Effort) -> Result<Thinking> {
    match reader.take("think") {
        None => Ok(Thinking::default()),
        Some(Json::Bool(on)) => switched(effort, on, "think"),
        Some(Json::String(given)) if ["low", "medium", "high", "max"].contains(&given.as_str()) => {
            level(effort, &given, "think")
        }
        Some(Json::String(level)) => {
            let reason = format!("`{level}` is not one of low, medium, high, max");
            Err(ApiError::value("think", reason))
        }
        Some(other) => Err(expected("think", "a boolean, or low, medium, high or max", &other)),
    }
}
