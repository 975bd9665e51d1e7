//! `GET /v1/models`: the served model, with what it is and what it honours.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::Response;
use inference_core::{PictureLimits, PictureTokens, Support, TextModel};
use serde_json::{Map, Value as Json, json};

use crate::config::ImageService;
use crate::error::{ApiError, Result};
use crate::http::path::Name;
use crate::http::response::json_response;
use crate::protocol::pictures::sight;
use crate::run::state::State;

/// All models, of which there is one.
///
/// # Errors
/// 503 while the model is loaded and while the server ends.
pub async fn list(Shared(state): Shared<Arc<State>>) -> Result<Response> {
    let loaded = state.loaded()?;
    let model = object(&state, loaded.model.as_ref());
    let images = state.config.images.as_ref().map(|service| image_object(&state, service));
    let models: Vec<Json> = [model].into_iter().chain(images).collect();
    Ok(json_response(StatusCode::OK, &json!({"object": "list", "data": models})))
}

/// One model.
///
/// # Errors
/// 404 for a name that is not served, and as [`list`].
pub async fn one(Shared(state): Shared<Arc<State>>, Name(name): Name) -> Result<Response> {
    if let Some(service) = state.config.images.as_ref().filter(|service| service.name == name) {
        state.loaded()?;
        return Ok(json_response(StatusCode::OK, &image_object(&state, service)));
    }
    if !state.config.serves(&name) {
        return Err(ApiError::model_not_found(&name, &state.config.model));
    }
    let loaded = state.loaded()?;
    Ok(json_response(StatusCode::OK, &object(&state, loaded.model.as_ref())))
}

/// The model that makes pictures.
fn image_object(state: &State, service: &ImageService) -> Json {
    let info = service.model.info();
    json!({
        "id": service.name,
        "object": "model",
        "created": state.created,
        "owned_by": "local",
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

fn object(state: &State, model: &dyn TextModel) -> Json {
    let info = model.info();
    let sees = sight(model.capabilities()).is_ok();
    let features: Map<String, Json> = model
        .capabilities()
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
        "id": state.config.model,
        "object": "model",
        "created": state.created,
        "owned_by": "local",
        "max_model_len": info.context_length,
        "info": {
            "architecture": info.architecture,
            "num_parameters": info.num_parameters,
            "vocab_size": info.vocab_size,
            "num_layers": info.num_layers,
            "hidden_size": info.hidden_size,
            "quant_bits": info.quant_bits,
            "quant_group": info.quant_group,
            "weight_bytes": info.weight_bytes,
            "kv_bytes_per_token": info.kv_bytes_per_token,
            "dtype": info.dtype,
            "device": info.device,
            "eos_token_ids": info.eos_token_ids,
            "chat_template": info.chat_template,
            "pictures": info.pictures.as_ref().map(pictures),
        },
        "input_modalities": if sees { json!(["text", "image"]) } else { json!(["text"]) },
        "capabilities": features,
    })
}

/// What the model takes of pictures.
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
