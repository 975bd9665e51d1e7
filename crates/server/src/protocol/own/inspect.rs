//! `POST /v1/inspect`: the keys, queries and attention weights of a prompt, where the model shows
//! them.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use inference_core::{
    AttentionSnapshot, CancelToken, Feature, InspectOptions, LayerAttention, TextModel,
};
use serde_json::{Value as Json, json};

use super::given::Given;
use super::tables;
use crate::error::{ApiError, Names, Result};
use crate::fields::json::number;
use crate::fields::prompts::prompt;
use crate::http::response::json_response;
use crate::protocol::request::{Checked, checked};
use crate::run::state::{State, blocking};

/// Cancels what a request started when its client leaves.
pub struct CancelOnDrop(pub CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Shows a prompt's attention.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let Checked { mut reader, loaded, .. } =
        checked(&state, request, &[tables::TEMPLATE, tables::INSPECT]).await?;
    let model = Arc::clone(&loaded.model);
    let values = reader.bool("values")?.unwrap_or(false);
    let weights = reader.bool("weights")?.unwrap_or(false);
    let layers = reader.ids("layers")?;
    let given = Given::of(&mut reader, "prompt", (&state, model.as_ref()), |value| {
        Ok(vec![prompt("prompt", value)?])
    })?;
    reader.finish()?;
    let names = Names::new(&[("inspect_attention", "model")]);
    let able = model.capabilities().require(Feature::InspectAttention);
    able.map_err(|error| ApiError::from(error).named(&names))?;
    if model.attention_inspector().is_none() {
        return Err(ApiError::unsupported("model", "its attention cannot be looked at"));
    }
    let layers = layers.map(|layers| layers.into_iter().map(|layer| layer as usize).collect());
    let cancel = CancelToken::new();
    let options = InspectOptions { layers, weights, cancel: cancel.clone() };
    options.validate()?;
    options.chosen(model.info().num_layers)?;
    let permits = loaded.admission().take(given.count(), given.field())?;
    let field = given.field();
    let _cancel = CancelOnDrop(cancel.clone());
    let most = state.config.limits.inspect_values;
    let work = move || {
        let _held = (permits, loaded);
        let inspector = model.attention_inspector().ok_or(inference_core::Error::Closed)?;
        let prompts = given.prompts(model.as_ref())?;
        let snapshot = inspector.inspect_attention(&prompts[0], &options)?;
        report(model.as_ref(), &snapshot, values.then_some(most))
    };
    let object = blocking(work).await.map_err(|error| error.or_about(field))?;
    Ok(json_response(StatusCode::OK, &object))
}

/// `values`: how many may be reported, `None` where shapes alone are asked for.
fn report(
    model: &dyn TextModel,
    snapshot: &AttentionSnapshot,
    values: Option<usize>,
) -> Result<Json> {
    let size = |layer: &LayerAttention| {
        let weights = layer.weights.as_ref().map_or(0, |weights| weights.values.len());
        layer.keys.len() + layer.queries.len() + weights
    };
    let count: usize = snapshot.layers.iter().map(size).sum();
    if let Some(most) = values
        && count > most
    {
        let reason = format!("{count} values, at most {most} are reported: ask for fewer layers");
        return Err(ApiError::value("layers", reason));
    }
    let numbers = |values: &[f32]| -> Json { values.iter().map(|value| number(*value)).collect() };
    let layer = |layer: &LayerAttention| {
        let mut entry = json!({
            "layer": layer.layer,
            "n_heads": layer.n_heads,
            "n_kv_heads": layer.n_kv_heads,
            "head_dim": layer.head_dim,
            "positions": layer.positions,
        });
        if let Some(weights) = &layer.weights {
            entry["entropy"] = numbers(&weights.entropy);
        }
        if values.is_some() {
            entry["keys"] = numbers(&layer.keys);
            entry["queries"] = numbers(&layer.queries);
            if let Some(weights) = &layer.weights {
                entry["weights"] = numbers(&weights.values);
            }
        }
        entry
    };
    Ok(json!({
        "object": "attention",
        "architecture": model.model_type(),
        "seq_len": snapshot.seq_len,
        "layers": snapshot.layers.iter().map(layer).collect::<Vec<_>>(),
    }))
}
