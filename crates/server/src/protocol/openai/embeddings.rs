//! `POST /v1/embeddings`: refused, because language models here have no embedding of a text.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::response::Response;

use super::tables;
use crate::error::{ApiError, Result};
use crate::fields::prompts::prompts;
use crate::protocol::request::{Checked, checked};
use crate::run::state::State;

/// Refuses.
///
/// # Errors
/// Always: what is wrong with the request, else that the model cannot.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let Checked { mut reader, .. } = checked(&state, request, &[tables::EMBEDDINGS]).await?;
    prompts("input", reader.take("input").unwrap_or_default(), state.config.limits.prompts)?;
    let reason = "the served model generates text and embeds none; serve an embedding model";
    Err(ApiError::unsupported("model", reason))
}
