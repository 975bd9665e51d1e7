//! `GET /props`, `/lora-adapters` and `/version`: what the server and its model are.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::Response;
use inference_core::{Feature, Support};
use serde_json::json;

use crate::error::Result;
use crate::http::response::json_response;
use crate::pool::loaded::Any;
use crate::pool::models::Makes;
use crate::run::state::State;

/// The name of the server with its version.
const BUILD: &str = concat!("ml-", env!("CARGO_PKG_VERSION"));

/// Tells of the model, which a question does not load.
///
/// # Errors
/// The server ends, or has no one model for text.
pub async fn props(Shared(state): Shared<Arc<State>>) -> Result<Response> {
    state.pool.check_open()?;
    let index = state.pool.find(None, Makes::Text).await?;
    let known = Arc::clone(state.pool.catalogue().known(index));
    let report = state.pool.reports().into_iter().find(|report| report.known.name == known.name);
    let mut object = json!({
        "total_slots": state.config.slots,
        "model_alias": &*known.name,
        "model_path": &*known.name,
        "build_info": BUILD,
        "is_sleeping": true,
    });
    if let Some(Any::Text(loaded)) = report.and_then(|report| report.model) {
        let info = loaded.model.info();
        let sees = loaded.model.capabilities().support(Feature::Images) == Support::Yes;
        let hears = loaded.model.capabilities().support(Feature::Audio) == Support::Yes;
        let special = |role: &str| {
            let token = info.special_tokens.iter().find(|token| token.role == role);
            token.map_or_else(String::new, |token| token.text.clone())
        };
        object["is_sleeping"] = json!(false);
        let params = json!({"seed": null, "n_predict": -1, "temperature": null, "stream": false});
        object["default_generation_settings"] = json!({
            "id": 0, "n_ctx": info.context_length, "is_processing": false, "params": params,
        });
        // Where it is from; its text is the model's own.
        object["chat_template"] = json!(info.chat_template);
        object["modalities"] = json!({"vision": sees, "audio": hears});
        object["bos_token"] = json!(special("bos"));
        object["eos_token"] = json!(special("eos"));
    }
    Ok(json_response(StatusCode::OK, &object))
}

/// Tells of adapters that a request could turn on: there are none, since each is part of its model.
///
/// # Errors
/// None.
pub async fn adapters() -> Result<Response> {
    Ok(json_response(StatusCode::OK, &json!([])))
}

/// Tells the version, as vLLM's clients ask for it.
///
/// # Errors
/// None.
pub async fn version() -> Result<Response> {
    Ok(json_response(StatusCode::OK, &json!({"version": env!("CARGO_PKG_VERSION")})))
}
