//! `GET /v1/models`: the models, with what each is, what it honours, and whether it is loaded. Each
//! object is OpenAI's and Anthropic's at once.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Shared;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use inference_core::{
    Capabilities, EmbeddingModelInfo, ImageModelInfo, ModelInfo, PictureLimits, PictureTokens,
    SoundLimits, SpeechModelInfo, Support, TranscriptionModelInfo,
};
use serde_json::{Map, Value as Json, json};

use crate::error::{ApiError, Result};
use crate::http::path::Name;
use crate::http::query;
use crate::http::response::json_response;
use crate::pool::known::Known;
use crate::pool::loaded::Any;
use crate::pool::models::{Described, Makes};
use crate::pool::report::Report;
use crate::protocol::llama_server::models::{fields, listed};
use crate::protocol::ollama::time::rfc3339;
use crate::protocol::pictures::sight;
use crate::protocol::sounds::hearing;
use crate::run::state::{State, since_1970};

/// All models, or the part of them that Anthropic's `limit`, `after_id` and `before_id` ask for.
///
/// # Errors
/// 503 while the server ends, and before it is ready where no request waits for that; 400 for a
/// part that there is not.
pub async fn list(Shared(state): Shared<Arc<State>>, uri: Uri) -> Result<Response> {
    state.pool.check_open()?;
    state.pool.refresh().await;
    let reports = state.pool.reports();
    let models: Vec<Json> = reports.iter().map(|one| object(&state, one)).collect();
    let (models, has_more) = part(models, &uri)?;
    let report = |model: &Json| reports.iter().find(|report| model["id"] == *report.known.name);
    let listed: Vec<Json> =
        models.iter().filter_map(|model| Some(listed(report(model)?, model))).collect();
    let id = |model: Option<&Json>| model.map_or(Json::Null, |model| model["id"].clone());
    let (first, last) = (id(models.first()), id(models.last()));
    let object = json!({
        "object": "list",
        "data": models,
        "models": listed,
        "has_more": has_more,
        "first_id": first,
        "last_id": last,
    });
    Ok(json_response(StatusCode::OK, &object))
}

/// The part of `models` that the queries of `uri` ask for, and whether there are more in their
/// direction.
fn part(mut models: Vec<Json>, uri: &Uri) -> Result<(Vec<Json>, bool)> {
    let pairs = query::pairs(uri.query())?;
    let query = |name: &str| {
        let found = pairs.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    };
    let place = |models: &[Json], name: &str, id: &str| {
        let found = models.iter().position(|model| model["id"] == id);
        found.ok_or_else(|| ApiError::value(name, format!("there is no model `{id}`")))
    };
    let limit = query("limit").map(|limit| {
        let limit = limit.parse().ok().filter(|limit| (1..=1000).contains(limit));
        limit.ok_or_else(|| ApiError::value("limit", "expected a whole number from 1 to 1000"))
    });
    let limit: usize = limit.transpose()?.unwrap_or(usize::MAX);
    if let Some(id) = query("before_id") {
        models.truncate(place(&models, "before_id", id)?);
        let more = models.len().saturating_sub(limit);
        return Ok((models.split_off(more), more > 0));
    }
    if let Some(id) = query("after_id") {
        models.drain(..=place(&models, "after_id", id)?);
    }
    let has_more = models.len() > limit;
    models.truncate(limit);
    Ok((models, has_more))
}

/// One model.
///
/// # Errors
/// 404 for a name that no model has, and as [`list`].
pub async fn one(Shared(state): Shared<Arc<State>>, Name(name): Name) -> Result<Response> {
    let report = state.pool.get(&name).await?;
    state.pool.check_open()?;
    Ok(json_response(StatusCode::OK, &object(&state, &report)))
}

/// A model, and where it is in its life.
fn object(state: &State, report: &Report) -> Json {
    let known = &report.known;
    let mut object = json!({
        "id": &*known.name,
        "object": "model",
        "type": "model",
        "display_name": &*known.name,
        "created": state.created,
        "created_at": rfc3339(Duration::from_secs(state.created)),
        "owned_by": "local",
        "state": report.state,
        "bytes": report.bytes.or(known.bytes()),
        "pinned": report.pinned,
        "loaded_at": report.loaded.map(|time| since_1970().saturating_sub(time).as_secs()),
        "unloads_in": report.due.map(|due| due.as_secs()),
        "last_used": report.unused.map(|time| since_1970().saturating_sub(time).as_secs()),
    });
    if let Some(error) = &report.error {
        object["error"] = json!(error);
    }
    if let Some(load) = report.load() {
        object["load"] = load;
    }
    let told = match &report.model {
        Some(Any::Text(loaded)) => text(loaded.model.info(), loaded.model.capabilities()),
        Some(Any::Image(model)) => image(model.info()),
        Some(Any::Embedding(model)) => embedding(model.info()),
        Some(Any::Transcription(model)) => transcription(model.info()),
        Some(Any::Speech(model)) => speech(model.info()),
        None => described(known),
    };
    let aliases = state.pool.catalogue().names().aliases(&known.name);
    for further in [fields(report, &aliases), told] {
        if let (Json::Object(object), Json::Object(further)) = (&mut object, further) {
            object.extend(further);
        }
    }
    object
}

/// The description of a model that is not loaded, as JSON.
fn described(known: &Known) -> Json {
    match (&known.described, known.makes) {
        (Some(Described::Text(info, capabilities)), _) => text(info, capabilities),
        (Some(Described::Image(info)), _) => image(info),
        (Some(Described::Embedding(info)), _) => embedding(info),
        (Some(Described::Transcription(info)), _) => transcription(info),
        (Some(Described::Speech(info)), _) => speech(info),
        (None, Makes::Pictures) => json!({"output_modalities": ["image"]}),
        (None, Makes::Speech) => json!({"output_modalities": ["audio"]}),
        (None, _) => json!({}),
    }
}

/// A model that makes pictures.
fn image(info: &ImageModelInfo) -> Json {
    json!({
        "info": {
            "pipeline": info.pipeline,
            "quant_bits": info.quant_bits,
            "dtype": info.dtype,
            "device": info.device,
            "default_side": info.default_side,
            "default_steps": info.default_steps,
            "default_guidance": info.default_guidance,
            "min_input_images": info.min_images,
            "max_input_images": info.max_images,
        },
        "output_modalities": ["image"],
    })
}

/// A model that transcribes speech.
fn transcription(info: &TranscriptionModelInfo) -> Json {
    json!({
        "info": {
            "architecture": info.architecture,
            "num_parameters": info.num_parameters,
            "vocab_size": info.vocab_size,
            "hidden_size": info.hidden_size,
            "quant_bits": info.quant_bits,
            "file_format": info.stored_as.format,
            "file_quantization": info.stored_as.quantization,
            "weight_bytes": info.weight_bytes,
            "dtype": info.dtype,
            "device": info.device,
            "languages": info.languages,
            "translates": info.translates,
            "times_words": info.times_words,
            "window_seconds": info.window_seconds,
        },
        "input_modalities": ["audio"],
    })
}

/// A model that speaks.
fn speech(info: &SpeechModelInfo) -> Json {
    json!({
        "info": {
            "architecture": info.architecture,
            "num_parameters": info.num_parameters,
            "vocab_size": info.vocab_size,
            "hidden_size": info.hidden_size,
            "file_format": info.stored_as.format,
            "weight_bytes": info.weight_bytes,
            "dtype": info.dtype,
            "device": info.device,
            "voices": info.voices,
            "default_voice": info.default_voice,
            "sample_rate": info.sample_rate,
        },
        "output_modalities": ["audio"],
    })
}

/// A model that embeds texts or scores pairs of them.
fn embedding(info: &EmbeddingModelInfo) -> Json {
    let names: Vec<_> = info.prompts.iter().map(|(name, _)| name).collect();
    json!({
        "max_model_len": info.max_tokens,
        "info": {
            "architecture": info.architecture,
            "num_parameters": info.num_parameters,
            "vocab_size": info.vocab_size,
            "num_layers": info.num_layers,
            "hidden_size": info.hidden_size,
            "quant_bits": info.quant_bits,
            "file_format": info.stored_as.format,
            "file_quantization": info.stored_as.quantization,
            "weight_bytes": info.weight_bytes,
            "dtype": info.dtype,
            "device": info.device,
            "dimensions": info.dimensions,
            "pooling": info.pooling.map(inference_core::Pooling::as_str),
            "scores": info.scores,
            "prompts": names,
            "default_prompt": info.default_prompt,
        },
        "input_modalities": ["text"],
    })
}

fn text(info: &ModelInfo, capabilities: &Capabilities) -> Json {
    let others = [("image", sight(capabilities).is_ok()), ("audio", hearing(capabilities).is_ok())];
    let others = others.into_iter().filter(|(_, takes)| *takes).map(|(name, _)| name);
    let modalities: Vec<&str> = ["text"].into_iter().chain(others).collect();
    let features: Map<String, Json> = capabilities
        .iter()
        .map(|(feature, support)| {
            let support = match support {
                Support::Yes => json!({"supported": true}),
                Support::No(reason) => json!({"supported": false, "reason": reason}),
            };
            (feature.as_str().to_owned(), support)
        })
        .collect();
    json!({
        "max_model_len": info.context_length,
        "info": {
            "architecture": info.architecture,
            "num_parameters": info.num_parameters,
            "vocab_size": info.vocab_size,
            "num_layers": info.num_layers,
            "hidden_size": info.hidden_size,
            "quant_bits": info.quant_bits,
            "quant_group": info.quant_group,
            "file_format": info.stored_as.format,
            "file_quantization": info.stored_as.quantization,
            "weight_bytes": info.weight_bytes,
            "kv_bytes_per_token": info.kv_bytes_per_token,
            "dtype": info.dtype,
            "device": info.device,
            "eos_token_ids": info.eos_token_ids,
            "chat_template": info.chat_template,
            "pictures": info.pictures.as_ref().map(pictures),
            "sounds": info.sounds.as_ref().map(sounds),
        },
        "input_modalities": modalities,
        "capabilities": features,
    })
}

/// The model's limits on sounds, as JSON.
fn sounds(limits: &SoundLimits) -> Json {
    json!({
        "formats": limits.formats,
        "max_bytes": limits.max_bytes,
        "max_seconds": limits.max_seconds,
        "max_sounds": limits.max_sounds,
        "max_tokens": limits.max_tokens,
    })
}

/// The model's limits on pictures, as JSON.
fn pictures(limits: &PictureLimits) -> Json {
    let tokens = match limits.tokens {
        PictureTokens::Fixed(count) => json!({"fixed": count}),
        PictureTokens::Cells { cell, least, most } => {
            json!({"cell": cell, "least": least, "most": most})
        }
    };
    json!({
        "formats": limits.formats,
        "max_bytes": limits.max_bytes,
        "max_pixels": limits.max_pixels,
        "max_pictures": limits.max_pictures,
        "tokens": tokens,
    })
}
