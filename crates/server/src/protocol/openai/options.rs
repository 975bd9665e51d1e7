//! Generation options of chats and completions.

use std::collections::BTreeMap;

use inference_core::{Constraint, GenerateOptions, PenaltyScope, Xtc};
use serde_json::Value as Json;

use crate::config::Limits;
use crate::error::{ApiError, Names, Result};
use crate::fields::bounds::check_stops;
use crate::fields::reader::{Reader, expected};
use crate::protocol::conversation::{bounded, constrain};
use crate::protocol::generate::{Asked, Delivery};

/// The threshold of excluding top choices where a request gives its probability alone.
const XTC_THRESHOLD: f32 = 0.1;

/// The request's fields for options of the contract that have other names.
const NAMES: &[(&str, &str)] = &[
    ("xtc", "xtc_probability"),
    ("xtc.probability", "xtc_probability"),
    ("xtc.threshold", "xtc_threshold"),
    ("special_tokens", "skip_special_tokens"),
];

/// The values of the fields of [`SAMPLING`](super::tables::SAMPLING).
#[derive(Debug)]
pub struct Sampling {
    /// The generations: `n` answers to one prompt.
    pub asked: Asked,
    /// The usage in the last event of a stream.
    pub usage: UsageEvent,
}

/// The usage in a stream's last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageEvent {
    /// The event has it.
    Told,
    /// The event does not have it.
    Untold,
}

/// Takes the fields of [`SAMPLING`](super::tables::SAMPLING), but for the model.
///
/// # Errors
/// The first field that means nothing.
pub fn sampling(reader: &mut Reader, limits: &Limits) -> Result<Sampling> {
    let mut options = GenerateOptions {
        temperature: reader.number("temperature")?,
        top_p: reader.number("top_p")?,
        top_k: reader.count("top_k")?,
        min_p: reader.number("min_p")?,
        xtc: xtc(reader)?,
        repetition_penalty: reader.number("repetition_penalty")?,
        presence_penalty: reader.number("presence_penalty")?,
        frequency_penalty: reader.number("frequency_penalty")?,
        penalty_window: reader.count("penalty_window")?,
        penalty_scope: penalty_scope(reader)?,
        logit_bias: logit_bias(reader, limits)?,
        // A negative seed is the same 64 bits.
        seed: reader.integer("seed")?.map(|seed| seed as u64),
        stop: stop(reader, limits)?,
        stop_token_ids: reader.ids("stop_token_ids")?.unwrap_or_default(),
        ignore_eos: reader.bool("ignore_eos")?.unwrap_or(false),
        draft_tokens: reader.count("draft_tokens")?.unwrap_or(0),
        special_tokens: reader.bool("skip_special_tokens")? == Some(false),
        ..GenerateOptions::default()
    };
    if options.stop_token_ids.len() > limits.stop {
        let reason = format!("has more than {} ids", limits.stop);
        return Err(ApiError::value("stop_token_ids", reason));
    }
    let mut names = Names::new(NAMES);
    for (field, make) in [
        ("regex", Constraint::Regex as fn(String) -> Constraint),
        ("grammar", Constraint::Lark as fn(String) -> Constraint),
    ] {
        if let Some(text) = reader.text(field)? {
            bounded(field, text.len(), limits)?;
            constrain(&mut options, &mut names, field, make(text))?;
        }
    }
    let delivery = Delivery::of(reader)?;
    let asked = Asked {
        options,
        prompts: 1,
        per_prompt: reader.count("n")?.unwrap_or(1),
        context: None,
        delivery,
        names,
        count_field: "n",
        text_field: "messages",
    };
    Ok(Sampling { usage: usage_event(reader, delivery)?, asked })
}

fn penalty_scope(reader: &mut Reader) -> Result<PenaltyScope> {
    let scope = reader.text("penalty_scope")?.map(|scope| scope.parse());
    Ok(scope.transpose()?.unwrap_or_default())
}

fn xtc(reader: &mut Reader) -> Result<Option<Xtc>> {
    let threshold = reader.number("xtc_threshold")?;
    match (reader.number("xtc_probability")?, threshold) {
        (Some(probability), threshold) => {
            Ok(Some(Xtc { probability, threshold: threshold.unwrap_or(XTC_THRESHOLD) }))
        }
        (None, Some(_)) => {
            Err(ApiError::value("xtc_threshold", "says nothing without `xtc_probability`"))
        }
        (None, None) => Ok(None),
    }
}

fn logit_bias(reader: &mut Reader, limits: &Limits) -> Result<BTreeMap<u32, f32>> {
    let entries = reader.object("logit_bias")?.unwrap_or_default();
    if entries.len() > limits.logit_bias {
        let reason = format!("has more than {} entries", limits.logit_bias);
        return Err(ApiError::value("logit_bias", reason));
    }
    let entry = |(id, bias): (String, Json)| {
        // As ids are written, so that `+5` and `05` are not further names of 5.
        let read = id.parse().ok().filter(|read: &u32| read.to_string() == id);
        let id = read.ok_or_else(|| {
            ApiError::value("logit_bias", format!("`{id}` is not the id of a token"))
        })?;
        match bias.as_f64() {
            // OpenAI's -100 is a ban, and here it is one whatever the logits are.
            Some(-100.0) => Ok((id, f32::NEG_INFINITY)),
            Some(bias) if (-100.0..=100.0).contains(&bias) => Ok((id, bias as f32)),
            _ => Err(expected(format!("logit_bias.{id}"), "a number from -100 to 100", &bias)),
        }
    };
    entries.into_iter().map(entry).collect()
}

/// Takes the field `stop`.
///
/// # Errors
/// It is no text and no texts, or they are too many or too long.
pub fn stop(reader: &mut Reader, limits: &Limits) -> Result<Vec<String>> {
    let stop = reader.text_or_texts("stop", "a string or an array of strings")?.unwrap_or_default();
    check_stops(&reader.path("stop"), &stop, limits.stop)?;
    Ok(stop)
}

fn usage_event(reader: &mut Reader, delivery: Delivery) -> Result<UsageEvent> {
    let Some(options) = reader.object("stream_options")? else { return Ok(UsageEvent::Untold) };
    if delivery == Delivery::Whole {
        return Err(ApiError::value("stream_options", "says nothing without `stream`"));
    }
    let mut options = Reader::new("stream_options", Json::Object(options))?;
    let include = options.bool("include_usage")?.unwrap_or(false);
    if options.bool("include_obfuscation")? == Some(true) {
        let reason = "chunks are sent as they are";
        return Err(ApiError::unsupported("stream_options.include_obfuscation", reason));
    }
    options.finish()?;
    Ok(if include { UsageEvent::Told } else { UsageEvent::Untold })
}
