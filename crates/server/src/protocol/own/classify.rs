//! `POST /v1/classify`: the likeliest next token, and how likely given labels are.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use inference_core::{CancelToken, ClassifyOptions, ClassifyResult, GenerateOptions, Prompt};
use serde_json::{Value as Json, json};

use super::given::Given;
use super::inspect::CancelOnDrop;
use super::tables;
use crate::error::{ApiError, Result};
use crate::fields::json::number;
use crate::fields::prompts::prompts;
use crate::http::response::json_response;
use crate::protocol::openai::head::of_usage;
use crate::protocol::request::{Checked, checked};
use crate::run::part::Usage;
use crate::run::state::{State, blocking, now};

/// The most labels of a request.
const LABELS: usize = 256;

/// Classifies inputs.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let Checked { mut reader, loaded, .. } =
        checked(&state, request, &[tables::TEMPLATE, tables::CLASSIFY]).await?;
    let labels = reader.texts("labels")?.unwrap_or_default();
    if labels.len() > LABELS {
        return Err(ApiError::value("labels", format!("has more than {LABELS} entries")));
    }
    let most = state.config.limits.prompts;
    let given = Given::of(&mut reader, "input", (&state, loaded.model.as_ref()), |value| {
        prompts("input", value, most)
    })?;
    reader.finish()?;
    let cancel = CancelToken::new();
    let generate = GenerateOptions { cancel: cancel.clone(), ..GenerateOptions::default() };
    let options = ClassifyOptions { labels: labels.clone(), generate };
    options.validate()?;
    loaded.model.capabilities().check_classify(&options)?;

    let permits = loaded.admission().take(given.count(), given.field())?;
    let field = given.field();
    let _cancel = CancelOnDrop(cancel);
    let (model, name) = (Arc::clone(&loaded.model), loaded.name().to_owned());
    let work = move || {
        // Held until the engine is done, even where the client has left.
        let _held = (permits, loaded);
        let mut tokens = 0;
        let inputs = given
            .prompts(model.as_ref())?
            .into_iter()
            .map(|input| {
                let input = match input {
                    Prompt::Text(text) => Prompt::Ids(model.encode(&text)?),
                    other => other,
                };
                tokens += model.prompt_ids(&input)?.len();
                Ok(input)
            })
            .collect::<Result<Vec<_>>>()?;
        let results = model.classify(&inputs, &options)?;
        let text = |result: &ClassifyResult| model.decode(&[result.token.id]).unwrap_or_default();
        let data = results
            .iter()
            .enumerate()
            .map(|(index, result)| entry(index, result, &text(result), &labels));
        Ok((data.collect::<Vec<_>>(), tokens))
    };
    let (data, tokens) = blocking(work).await.map_err(|error| error.or_about(field))?;
    let object = json!({
        "id": state.id("classify-"),
        "object": "list",
        "created": now(),
        "model": name,
        "data": data,
        "usage": of_usage(Usage { prompt: tokens, ..Usage::default() }),
    });
    Ok(json_response(StatusCode::OK, &object))
}

fn entry(index: usize, result: &ClassifyResult, text: &str, labels: &[String]) -> Json {
    let token = &result.token;
    let logprob = token.logprob.map(number);
    let mut entry = json!({
        "index": index,
        "object": "classification",
        "token": {"id": token.id, "text": text, "logprob": logprob},
    });
    let likeliest = |one: &usize, other: &usize| {
        result.labels[*one].logprob.total_cmp(&result.labels[*other].logprob)
    };
    if let Some(best) = (0..result.labels.len().min(labels.len())).max_by(likeliest) {
        entry["label"] = json!(labels[best]);
        entry["num_classes"] = json!(labels.len());
        // Shares of the labels among themselves.
        let top = f64::from(result.labels[best].logprob);
        let share = |score: &inference_core::LabelScore| (f64::from(score.logprob) - top).exp();
        let sum: f64 = result.labels.iter().map(share).sum();
        entry["probs"] = result.labels.iter().map(|score| json!(share(score) / sum)).collect();
        let score = |(label, score): (&String, &inference_core::LabelScore)| json!({"label": label, "logprob": number(score.logprob), "tokens": score.tokens});
        entry["labels"] = labels.iter().zip(&result.labels).map(score).collect();
    }
    entry
}
