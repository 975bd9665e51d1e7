//! Generation options of chats and completions.

use std::collections::BTreeMap;

use inference_core::{Dry, GenerateOptions, PenaltyScope, Xtc};
use serde_json::Value as Json;

use super::structured::structured;
use crate::config::Limits;
use crate::error::{ApiError, Names, Result};
use crate::fields::bounds::check_stops;
use crate::fields::reader::{Reader, expected};
use crate::fields::told::take_hint;
use crate::protocol::generate::{Asked, Delivery};
use crate::protocol::timings::Times;

/// The threshold of excluding top choices where a request gives its probability alone.
const XTC_THRESHOLD: f32 = 0.1;

/// The request's fields for options of the contract that have other names.
const NAMES: &[(&str, &str)] = &[
    ("xtc", "xtc_probability"),
    ("xtc.probability", "xtc_probability"),
    ("xtc.threshold", "xtc_threshold"),
    ("dry", "dry_multiplier"),
    ("dry.multiplier", "dry_multiplier"),
    ("dry.base", "dry_base"),
    ("dry.sequence_breakers", "dry_sequence_breakers"),
    ("special_tokens", "skip_special_tokens"),
];

/// The values of the fields of [`SAMPLING`](super::tables::SAMPLING).
#[derive(Debug)]
pub struct Sampling {
    /// The generations: `n` answers to one prompt.
    pub asked: Asked,
    /// The events of a stream that have the usage.
    pub usage: UsageEvent,
    /// The times of the request, as llama.cpp's clients ask for them.
    pub times: Times,
}

/// The events of a stream that have the usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageEvent {
    /// A last one has it.
    Told,
    /// Each has that so far, and a last one all of it.
    Each,
    /// None has it.
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
        // Below 0 it is off, as 0 is.
        top_k: reader.integer("top_k")?.map(|most| usize::try_from(most).unwrap_or(0)),
        min_p: reader.number("min_p")?,
        typical_p: typical_p(reader)?,
        top_n_sigma: reader.number("top_n_sigma")?,
        xtc: xtc(reader)?,
        dry: dry(reader)?,
        repetition_penalty: reader.number("repetition_penalty")?,
        presence_penalty: reader.number("presence_penalty")?,
        frequency_penalty: reader.number("frequency_penalty")?,
        penalty_window: reader.count("penalty_window")?,
        penalty_scope: penalty_scope(reader)?,
        logit_bias: logit_bias(reader, limits)?,
        // A negative seed but -1, which is none, is the same 64 bits.
        seed: reader.integer("seed")?.filter(|seed| *seed != -1).map(|seed| seed as u64),
        stop: stop(reader, limits)?,
        stop_token_ids: reader.ids("stop_token_ids")?.unwrap_or_default(),
        ignore_eos: reader.bool("ignore_eos")?.unwrap_or(false),
        min_tokens: reader.count("min_tokens")?.unwrap_or(0),
        draft_tokens: reader.count("draft_tokens")?,
        special_tokens: reader.bool("skip_special_tokens")? == Some(false),
        ..GenerateOptions::default()
    };
    match reader.bool("do_sample")? {
        Some(true) if options.temperature.is_none_or(|temperature| temperature == 0.0) => {
            return Err(ApiError::value("do_sample", "needs a `temperature` above 0"));
        }
        Some(false) => options.temperature = Some(0.0),
        _ => {}
    }
    if options.stop_token_ids.len() > limits.stop {
        let reason = format!("has more than {} ids", limits.stop);
        return Err(ApiError::value("stop_token_ids", reason));
    }
    if let Some(window) = reader.integer("repeat_last_n")? {
        window_of_penalties(&mut options, window)?;
    }
    let mut names = Names::new(NAMES);
    structured(reader, limits, &mut options, &mut names)?;
    let delivery = Delivery::of(reader)?;
    let asked = Asked {
        options,
        prompts: 1,
        per_prompt: reader.count("n")?.unwrap_or(1),
        context: reader.count("num_ctx")?,
        delivery,
        tells_progress: progress(reader, delivery)?,
        names,
        count_field: "n",
        text_field: "messages",
    };
    let times = Times::of(reader)?;
    Ok(Sampling { usage: usage_event(reader, delivery)?, asked, times })
}

/// Returns true when a stream tells how far the prompt is read. A whole answer cannot tell it.
///
/// # Errors
/// The field is neither true nor false.
pub fn progress(reader: &mut Reader, delivery: Delivery) -> Result<bool> {
    let is_asked_for = reader.bool("return_progress")?.unwrap_or(false);
    if is_asked_for && delivery == Delivery::Whole {
        take_hint("return_progress", "it is told in a stream")?;
    }
    Ok(is_asked_for && delivery == Delivery::Stream)
}

/// Sets the window of the penalties as llama.cpp's field `repeat_last_n` has it: 0 turns them off,
/// and below 0 it is the context.
///
/// # Errors
/// Another field has set the window.
pub fn window_of_penalties(options: &mut GenerateOptions, window: i64) -> Result<()> {
    if options.penalty_window.is_some() {
        let reason = "is another name of `penalty_window`, which is there too";
        return Err(ApiError::value("repeat_last_n", reason));
    }
    if window == 0 {
        // Whatever the model's own are.
        options.repetition_penalty = Some(1.0);
        options.presence_penalty = Some(0.0);
        options.frequency_penalty = Some(0.0);
        return Ok(());
    }
    // By itself it is the window of the model's own penalties, which one that is off stands for.
    let is_asked = options.repetition_penalty.is_some() || options.frequency_penalty.is_some();
    if !is_asked {
        options.presence_penalty.get_or_insert(0.0);
    }
    options.penalty_window = Some(usize::try_from(window).unwrap_or(usize::MAX));
    Ok(())
}

/// Takes the field `name`, the most tokens of an answer; the inner `None` is to the end of the
/// context, which numbers below 0 mean.
///
/// # Errors
/// It is no whole number.
pub fn most_tokens(reader: &mut Reader, name: &str) -> Result<Option<Option<usize>>> {
    Ok(reader.integer(name)?.map(|most| usize::try_from(most).ok()))
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

/// Takes `typical_p` and its other name, of which 0 is off.
fn typical_p(reader: &mut Reader) -> Result<Option<f32>> {
    let typical_p = reader.number("typical_p")?;
    let other = reader.number("typical")?.map(|p| if p == 0.0 { 1.0 } else { p });
    if let (Some(one), Some(other)) = (typical_p, other)
        && one != other
    {
        let reason = "differs from `typical_p`, which is another name of it";
        return Err(ApiError::value("typical", reason));
    }
    Ok(typical_p.or(other))
}

/// Takes the fields of DRY, which say nothing where its multiplier is 0 or left out.
fn dry(reader: &mut Reader) -> Result<Option<Dry>> {
    let usual = Dry::default();
    let multiplier = reader.number("dry_multiplier")?;
    let base = reader.number("dry_base")?;
    let allowed_length = reader.count("dry_allowed_length")?;
    let last = reader.integer("dry_penalty_last_n")?;
    let breakers = reader.text_or_texts("dry_sequence_breakers", "an array of strings")?;
    let Some(multiplier) = multiplier.filter(|multiplier| *multiplier != 0.0) else {
        let given = [
            ("dry_base", base.is_some()),
            ("dry_allowed_length", allowed_length.is_some()),
            ("dry_penalty_last_n", last.is_some()),
            ("dry_sequence_breakers", breakers.is_some()),
        ];
        for (name, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
            take_hint(name, "says nothing without `dry_multiplier`")?;
        }
        return Ok(None);
    };
    Ok(Some(Dry {
        multiplier,
        base: base.unwrap_or(usual.base),
        allowed_length: allowed_length.unwrap_or(usual.allowed_length),
        penalty_last_n: last.and_then(|last| usize::try_from(last).ok()),
        sequence_breakers: breakers.unwrap_or(usual.sequence_breakers),
    }))
}

fn logit_bias(reader: &mut Reader, limits: &Limits) -> Result<BTreeMap<u32, f32>> {
    let entries: Vec<(String, Json)> = match reader.take("logit_bias") {
        None => Vec::new(),
        Some(Json::Object(fields)) => fields.into_iter().collect(),
        // llama.cpp's form.
        Some(Json::Array(pairs)) => {
            pairs.into_iter().enumerate().map(pair).collect::<Result<_>>()?
        }
        Some(other) => return Err(expected("logit_bias", "an object", &other)),
    };
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
        Ok((id, bias_of(&id.to_string(), &bias)?))
    };
    let mut biases = BTreeMap::new();
    for (id, bias) in entries.into_iter().map(entry).collect::<Result<Vec<_>>>()? {
        if biases.insert(id, bias).is_some() {
            return Err(ApiError::value("logit_bias", format!("has the id {id} twice")));
        }
    }
    Ok(biases)
}

/// The bias of the entry `key` of `logit_bias`.
///
/// # Errors
/// It is no number from -100 to 100.
pub fn bias_of(key: &str, bias: &Json) -> Result<f32> {
    match bias.as_f64() {
        // OpenAI's -100 is a ban, and here it is one whatever the logits are.
        Some(-100.0) => Ok(f32::NEG_INFINITY),
        Some(bias) if (-100.0..=100.0).contains(&bias) => Ok(bias as f32),
        _ => Err(expected(format!("logit_bias.{key}"), "a number from -100 to 100", bias)),
    }
}

/// A token's id and its bias, where they are a pair.
fn pair((index, pair): (usize, Json)) -> Result<(String, Json)> {
    let path = format!("logit_bias[{index}]");
    let Json::Array(items) = pair else { return Err(expected(path, "an array of two", &pair)) };
    match <[Json; 2]>::try_from(items) {
        Ok([Json::Number(id), Json::Bool(false)]) => Ok((id.to_string(), Json::from(-100))),
        Ok([Json::Number(id), bias]) => Ok((id.to_string(), bias)),
        _ => Err(ApiError::value(path, "expected the id of a token and its bias")),
    }
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
    // OpenRouter's form of it.
    let mut asks = false;
    if let Some(usage) = reader.take("usage") {
        let mut usage = Reader::new("usage", usage)?;
        asks = usage.bool("include")?.unwrap_or(false) && delivery == Delivery::Stream;
        usage.finish()?;
    }
    let told = if asks { UsageEvent::Told } else { UsageEvent::Untold };
    let Some(options) = reader.object("stream_options")? else { return Ok(told) };
    let mut options = Reader::new("stream_options", Json::Object(options))?;
    let include = options.bool("include_usage")?.unwrap_or(false);
    let continuous = options.bool("continuous_usage_stats")?.unwrap_or(false);
    options.hints(&["include_obfuscation"], "chunks are sent as they are")?;
    options.finish()?;
    if delivery == Delivery::Whole {
        // The usage of a whole answer is told in any case.
        take_hint("stream_options", "says nothing without `stream`")?;
        return Ok(UsageEvent::Untold);
    }
    Ok(match (continuous, include) {
        (true, true) => UsageEvent::Each,
        (true, false) => {
            let path = "stream_options.continuous_usage_stats";
            take_hint(path, "says nothing without `include_usage`")?;
            told
        }
        (false, true) => UsageEvent::Told,
        (false, false) => told,
    })
}
