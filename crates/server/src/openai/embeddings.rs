//! `POST /v1/embeddings`: refused, because language models here have no embedding of a text.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::response::Response;

use super::tables;
use crate::body;
use crate::error::{ApiError, Result};
use crate::fields;
use crate::prompts::prompts;
use crate::state::State;

/// Refuses.
///
/// # Errors
/// Always: what is wrong with the request, else that the model cannot.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    state.loaded()?;
    let (body, _) = body::object(&state, request).await?;
    let mut reader = fields::check(&[tables::EMBEDDINGS], &state.config.limits, body)?;
    prompts("input", reader.take("input").unwrap_or_default(), state.config.limits.prompts)?;
    state.serve(reader.text("model")?.as_deref())?;
    let reason = "the served model generates text and embeds none; serve an embedding model";
    Err(ApiError::unsupported("model", reason))
}
