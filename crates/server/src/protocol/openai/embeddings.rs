//! `POST /v1/embeddings`: vectors of texts.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use inference_core::{CancelToken, EmbedInput, EmbedOptions, Embeddings, Prompt, Truncate};
use serde_json::{Value as Json, json};

use super::tables;
use crate::error::{ApiError, Result};
use crate::fields::bounds::check_repeated;
use crate::fields::json::number;
use crate::fields::reader::Reader;
use crate::fields::table::check;
use crate::http::body;
use crate::http::response::json_response;
use crate::pool::models::Makes;
use crate::protocol::llama_server::prompts::prompts;
use crate::protocol::own::inspect::CancelOnDrop;
use crate::run::state::{State, blocking, cut_off};
use crate::run::tally::Tally;

/// Embeds texts.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    state.pool.check_open()?;
    let (object, _) = body::object(&state, request).await?;
    let limits = &state.config.limits;
    let mut reader = check(&[tables::EMBEDDINGS], limits, object)?;
    let inputs = reader.take("input");
    let inputs = prompts("input", reader.need("input", inputs)?, limits.inputs)?;
    let name = reader.text("model")?;
    state.pool.find(name.as_deref(), Makes::Vectors).await?;
    let is_base64 = reader.text("encoding_format")?.as_deref() == Some("base64");
    // When the client leaves, this future is dropped, and the work ends between two batches.
    let guard = CancelOnDrop(CancelToken::new());
    let options = EmbedOptions {
        max_tokens: None,
        prompt_name: reader.text("prompt_name")?,
        prompt: reader.text("prompt")?,
        dimensions: reader.count("dimensions")?,
        normalize: normalize(&mut reader)?,
        truncate: truncate(&mut reader)?,
        cancel: guard.0.clone(),
    };
    reader.finish()?;
    check_repeated("prompt", options.prompt.as_deref().map_or(0, str::len), inputs.len())?;
    let inputs: Vec<EmbedInput> = inputs.into_iter().map(input).collect::<Result<_>>()?;
    let given = [("prompt", &options.prompt), ("prompt_name", &options.prompt_name)];
    if let Some((field, _)) = given.iter().find(|(_, value)| value.is_some())
        && inputs.iter().any(|input| matches!(input, EmbedInput::Ids(_)))
    {
        let reason = "goes before texts; put its ids before those of `input`";
        return Err(ApiError::value(*field, reason));
    }
    Tally::current().asks_for(name.as_deref());
    let model = state.pool.embedding(name.as_deref(), Makes::Vectors).await?;
    Tally::current().answered_by(model.name());
    let name = model.name().to_owned();
    let work = move || model.embed(&inputs, &options).map_err(ApiError::from);
    let made = cut_off(&state, blocking(work)).await.map_err(|error| error.or_about("input"))?;
    Ok(json_response(StatusCode::OK, &answer(&name, &made, is_base64)))
}

/// Takes the field `truncate`: the end at which long texts are cut, if they are.
///
/// # Errors
/// A value that is none.
pub fn truncate(reader: &mut Reader) -> Result<Truncate> {
    match reader.text("truncate")? {
        None => Ok(Truncate::default()),
        Some(name) => Ok(name.parse()?),
    }
}

/// Takes the field `normalize` and llama.cpp's name of it, where 2 is the length that vectors may
/// have.
///
/// # Errors
/// Both are there and differ.
fn normalize(reader: &mut Reader) -> Result<Option<bool>> {
    let (normalize, norm) = (reader.bool("normalize")?, reader.integer("embd_normalize")?);
    let of_norm = match norm {
        None => return Ok(normalize),
        Some(2) => true,
        Some(-1) => false,
        Some(_) => {
            let reason = "vectors have the length 1 (2) or their own (-1)";
            return Err(ApiError::unsupported("embd_normalize", reason));
        }
    };
    match normalize {
        Some(other) if other != of_norm => {
            Err(ApiError::value("embd_normalize", "differs from `normalize`"))
        }
        _ => Ok(Some(of_norm)),
    }
}

fn input(prompt: Prompt) -> Result<EmbedInput> {
    match prompt {
        Prompt::Ids(ids) => Ok(EmbedInput::Ids(ids)),
        Prompt::Text(text) => Ok(EmbedInput::Text(text)),
        Prompt::Parts(_) => {
            Err(ApiError::unsupported("input", "a text has ids or words, and not both in turn"))
        }
    }
}

fn answer(name: &str, made: &Embeddings, is_base64: bool) -> Json {
    let written = |vector: &Vec<f32>| match is_base64 {
        true => {
            let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
            json!(STANDARD.encode(bytes))
        }
        false => vector.iter().map(|value| number(*value)).collect(),
    };
    let entry = |(index, vector): (usize, &Vec<f32>)| json!({"object": "embedding", "index": index, "embedding": written(vector)});
    let tokens: usize = made.tokens.iter().sum();
    json!({
        "object": "list",
        "data": made.vectors.iter().enumerate().map(entry).collect::<Vec<_>>(),
        "model": name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })
}
