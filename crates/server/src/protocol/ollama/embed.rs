//! `POST /api/embed`, and the older `POST /api/embeddings`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use inference_core::{CancelToken, EmbedInput, EmbedOptions, Embeddings, Truncate};
use serde_json::{Value as Json, json};

use super::ask::{Ask, ask};
use super::tables;
use super::wire::nanoseconds;
use crate::config::Limits;
use crate::error::{ApiError, Result};
use crate::fields::json::number;
use crate::fields::reader::Reader;
use crate::fields::table::check_in;
use crate::http::response::json_response;
use crate::pool::models::Makes;
use crate::protocol::openai::options::stop;
use crate::protocol::own::inspect::CancelOnDrop;
use crate::run::state::{State, blocking, cut_off};
use crate::run::tally::Tally;

/// Embeds texts.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let mut ask = ask(&state, request, &[tables::EMBED], Makes::Vectors).await?;
    let texts = ask.reader.text_or_texts("input", "a text or texts")?;
    let texts = ask.reader.need("input", texts)?;
    let truncate = ask.reader.bool("truncate")?.unwrap_or(true);
    let options = EmbedOptions {
        max_tokens: most_tokens(&mut ask.reader, &state.config.limits)?,
        dimensions: ask.reader.count("dimensions")?,
        truncate: if truncate { Truncate::End } else { Truncate::default() },
        ..EmbedOptions::default()
    };
    let began = ask.began;
    let Made { name, load, made } = embed(&state, ask, texts, options, "input").await?;
    let object = json!({
        "model": name,
        "embeddings": made.vectors.iter().map(|vector| written(vector)).collect::<Vec<_>>(),
        "total_duration": nanoseconds(began.elapsed()),
        "load_duration": nanoseconds(load),
        "prompt_eval_count": made.tokens.iter().sum::<usize>(),
    });
    Ok(json_response(StatusCode::OK, &object))
}

/// Embeds one text.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn create_one(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let mut ask = ask(&state, request, &[tables::EMBEDDINGS], Makes::Vectors).await?;
    let text = ask.reader.text("prompt")?.unwrap_or_default();
    let max_tokens = most_tokens(&mut ask.reader, &state.config.limits)?;
    let options = EmbedOptions { truncate: Truncate::End, max_tokens, ..EmbedOptions::default() };
    let Made { made, .. } = embed(&state, ask, vec![text], options, "prompt").await?;
    let vector = made.vectors.first().map(|vector| written(vector)).unwrap_or_default();
    Ok(json_response(StatusCode::OK, &json!({"embedding": vector})))
}

/// `num_ctx` of the field `options`. Its other fields mean something where tokens are drawn.
fn most_tokens(reader: &mut Reader, limits: &Limits) -> Result<Option<usize>> {
    let given = reader.object("options")?.unwrap_or_default();
    let mut given = check_in("options", &[tables::OPTIONS], limits, given)?;
    if stop(&mut given, limits)?.iter().any(String::is_empty) {
        return Err(ApiError::value("options.stop", "holds an empty string"));
    }
    given.count("num_ctx")
}

/// Vectors, and what else is told of them.
struct Made {
    name: String,
    load: Duration,
    made: Embeddings,
}

async fn embed(
    state: &Arc<State>,
    ask: Ask,
    texts: Vec<String>,
    options: EmbedOptions,
    field: &str,
) -> Result<Made> {
    let Ask { reader, index, name, keep, .. } = ask;
    reader.finish()?;
    let most = state.config.limits.inputs;
    if texts.len() > most {
        let reason = format!("has {} texts, expected at most {most}", texts.len());
        return Err(ApiError::value(field, reason));
    }
    // When the client leaves, this future is dropped, and the work ends between two batches.
    let guard = CancelOnDrop(CancelToken::new());
    let options = EmbedOptions { cancel: guard.0.clone(), ..options };
    let inputs: Vec<EmbedInput> = texts.into_iter().map(EmbedInput::Text).collect();
    let waits = Instant::now();
    Tally::current().asks_for(Some(&name));
    let model = state.pool.embedding(Some(&name), Makes::Vectors).await?;
    Tally::current().answered_by(model.name());
    state.pool.keep(index, keep);
    let load = waits.elapsed();
    let work = move || model.embed(&inputs, &options).map_err(ApiError::from);
    let made = cut_off(state, blocking(work)).await.map_err(|error| error.or_about(field))?;
    Ok(Made { name, load, made })
}

fn written(vector: &[f32]) -> Json {
    vector.iter().map(|value| number(*value)).collect()
}
