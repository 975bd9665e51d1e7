//! `POST /v1/audio/transcriptions` and `/v1/audio/translations`: the text of speech.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use inference_core::{CancelToken, Fallback, Samples, SpeechTask, Timestamps, TranscribeOptions};
use serde_json::{Map, Value as Json};

use super::tables;
use super::transcript_wire::{Order, Written, names, streamed, whole};
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::fields::table::{Field, check};
use crate::http::body;
use crate::http::form::{self, Part};
use crate::pool::models::Makes;
use crate::protocol::own::inspect::CancelOnDrop;
use crate::run::state::{State, blocking, cut_off};
use crate::run::tally::Tally;

/// The longest sound that is taken, in seconds.
#[cfg(feature = "sound")]
const MOST_SECONDS: f64 = 2.0 * 3600.0;

/// Writes down what is said.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn transcribe(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let tables = &[tables::SPEECH, tables::TRANSCRIPTIONS];
    create(&state, request, tables, SpeechTask::Transcribe).await
}

/// Translates what is said to English.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn translate(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    create(&state, request, &[tables::SPEECH], SpeechTask::Translate).await
}

async fn create(
    state: &Arc<State>,
    request: Request,
    tables: &[&[Field]],
    task: SpeechTask,
) -> Result<Response> {
    state.pool.check_kind(Makes::Transcripts).await?;
    let limits = &state.config.limits;
    let (mut reader, file) = match form::boundary(request.headers()) {
        Some(boundary) => {
            let (object, file) = taken(form::parts(state, request, boundary).await?)?;
            (check(tables, limits, object)?, Some(file))
        }
        None => {
            let (object, _) = body::object(state, request).await?;
            (check(tables, limits, object)?, None)
        }
    };
    let text = reader.text("file")?;
    let file = match file {
        Some(file) => file,
        None => of_data_url(text.as_deref().unwrap_or_default())?,
    };
    let asked = reader.text("model")?;
    state.pool.find(asked.as_deref(), Makes::Transcripts).await?;
    // When the client leaves, what holds this is dropped, and the work ends between two tokens.
    let guard = CancelOnDrop(CancelToken::new());
    let streams = reader.bool("stream")?.unwrap_or(false);
    let written = written(&mut reader, streams)?;
    let options = options(&mut reader, task, &written, &guard)?;
    reader.finish()?;
    options.validate().map_err(|error| ApiError::from(error).named(&names()))?;
    Tally::current().asks_for(asked.as_deref());
    let model = state.pool.transcription(asked.as_deref()).await?;
    Tally::current().answered_by(model.name());
    let rate = model.info().sample_rate;
    let held = cut_off(state, state.sound()).await?;
    // With the work, so that it counts until it is done, even where the client has left.
    let work = move || decoded(&file, rate).map(|samples| (samples, held));
    let (samples, held) = cut_off(state, blocking(work)).await?;
    let order = Order { model, samples, held, options, written };
    match streams {
        true => streamed(state, order, guard).await,
        false => {
            let made = whole(state, order).await;
            drop(guard);
            made
        }
    }
}

/// The samples of a file.
#[cfg(feature = "sound")]
fn decoded(file: &[u8], rate: u32) -> Result<Samples> {
    let limits = sound::Limits { seconds: MOST_SECONDS, ..sound::Limits::default() };
    let sound = sound::Sound::decode(file, rate, &limits);
    let sound = sound.map_err(|error| ApiError::value("file", error.to_string()))?;
    Ok(Samples { values: sound.samples, rate })
}

#[cfg(not(feature = "sound"))]
fn decoded(_: &[u8], _: u32) -> Result<Samples> {
    Err(ApiError::unsupported("file", "this server is compiled without the feature `sound`"))
}

/// The fields of a form as JSON has them, and its file.
fn taken(parts: Vec<Part>) -> Result<(Map<String, Json>, Vec<u8>)> {
    let mut fields = Map::new();
    let mut file = None;
    for Part { name, is_file, bytes } in parts {
        if name == "file" && is_file {
            if file.replace(bytes).is_some() {
                return Err(ApiError::value(name, "is given twice"));
            }
            fields.insert(name, Json::from("of the form"));
            continue;
        }
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| ApiError::value(&name, "is not text in UTF-8"))?;
        // Lists are written as fields that end in brackets, one for each entry.
        if let Some(list) = name.strip_suffix("[]") {
            let list = fields.entry(list).or_insert_with(|| Json::Array(Vec::new()));
            if let Json::Array(items) = list {
                items.push(Json::from(text));
            }
            continue;
        }
        let value = match name.as_str() {
            "temperature"
            | "stream"
            | "seed"
            | "temperature_fallback"
            | "condition_on_previous_text" => {
                serde_json::from_str(&text.to_lowercase()).unwrap_or_else(|_| Json::from(text))
            }
            "timestamp_granularities" | "include" | "chunking_strategy" => {
                serde_json::from_str(&text).unwrap_or_else(|_| Json::from(text))
            }
            _ => Json::from(text),
        };
        if fields.insert(name.clone(), value).is_some() {
            return Err(ApiError::value(name, "is given twice"));
        }
    }
    let file = file.ok_or_else(|| ApiError::value("file", "is missing: send a file"))?;
    Ok((fields, file))
}

/// The bytes of a data URL.
fn of_data_url(url: &str) -> Result<Vec<u8>> {
    let wrong = || {
        let reason = "expected a form with a file, or a data URL such as `data:audio/wav;base64,…`";
        ApiError::value("file", reason)
    };
    let (head, data) = url.split_once(',').ok_or_else(wrong)?;
    let is_known = head.starts_with("data:") && head.ends_with(";base64");
    let bytes = is_known.then(|| STANDARD.decode(data.trim()).ok()).flatten();
    bytes.ok_or_else(wrong)
}

/// The form of the answer.
fn written(reader: &mut Reader, streams: bool) -> Result<Written> {
    let format = reader.text("response_format")?;
    let times = reader.texts("timestamp_granularities")?;
    let written = match format.as_deref() {
        None | Some("json") => Written::Json,
        Some("text") => Written::Text,
        Some("srt") => Written::Srt,
        Some("vtt") => Written::Vtt,
        _ => {
            let times = times.clone().unwrap_or_else(|| vec!["segment".to_owned()]);
            let has = |what: &str| times.iter().any(|time| time == what);
            Written::Verbose { segments: has("segment"), words: has("word") }
        }
    };
    if streams && !matches!(written, Written::Json | Written::Text) {
        return Err(ApiError::value("stream", "streams are of `response_format` json or text"));
    }
    if times.is_some_and(|times| !times.is_empty()) && !matches!(written, Written::Verbose { .. }) {
        let reason = "says nothing without `response_format` verbose_json";
        return Err(ApiError::value("timestamp_granularities", reason));
    }
    Ok(written)
}

fn options(
    reader: &mut Reader,
    task: SpeechTask,
    written: &Written,
    guard: &CancelOnDrop,
) -> Result<TranscribeOptions> {
    let timestamps = match written {
        Written::Json | Written::Text => Timestamps::None,
        Written::Verbose { words: true, .. } => Timestamps::Words,
        Written::Srt | Written::Vtt | Written::Verbose { .. } => Timestamps::Segments,
    };
    let falls_back = reader.bool("temperature_fallback")?.unwrap_or(false);
    Ok(TranscribeOptions {
        language: reader.text("language")?.filter(|language| !language.is_empty()),
        task,
        prompt: reader.text("prompt")?,
        timestamps,
        temperature: reader.number("temperature")?,
        seed: reader.count("seed")?.map(|seed| seed as u64),
        max_tokens: None,
        condition_on_previous: reader.bool("condition_on_previous_text")?,
        fallback: falls_back.then(Fallback::default),
        cancel: guard.0.clone(),
    })
}
