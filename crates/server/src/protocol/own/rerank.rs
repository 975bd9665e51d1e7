//! `POST /v1/rerank`: documents by how well they fit a query, in the form of Cohere and Jina.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use inference_core::{CancelToken, PairScores, ScoreOptions, TextPair};
use serde_json::{Value as Json, json};

use super::inspect::CancelOnDrop;
use super::tables;
use crate::error::{ApiError, Result};
use crate::fields::bounds::check_repeated;
use crate::fields::json::number;
use crate::fields::reader::Reader;
use crate::fields::table::check;
use crate::http::body;
use crate::http::response::json_response;
use crate::pool::models::Makes;
use crate::protocol::openai::embeddings::truncate;
use crate::run::state::{State, blocking, cut_off};
use crate::run::tally::Tally;

/// Orders documents.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    state.pool.check_open()?;
    let (object, _) = body::object(&state, request).await?;
    let limits = &state.config.limits;
    let mut reader = check(&[tables::RERANK], limits, object)?;
    let query = reader.text("query")?;
    let query = reader.need("query", query)?;
    let (given, form) = given(&mut reader)?;
    let documents = documents(form.field(), given, limits.inputs)?;
    let name = reader.text("model")?;
    state.pool.find(name.as_deref(), Makes::Scores).await?;
    let top = reader.count("top_n")?.unwrap_or(documents.len());
    let returns = reader.bool("return_documents")?.unwrap_or(false);
    let is_raw = reader.bool("raw_scores")?.unwrap_or(false);
    // When the client leaves, this future is dropped, and the work ends between two batches.
    let guard = CancelOnDrop(CancelToken::new());
    let options = ScoreOptions {
        instruction: reader.text("instruction")?,
        truncate: truncate(&mut reader)?,
        cancel: guard.0.clone(),
    };
    reader.finish()?;
    // A pair has its own query and the instruction.
    check_repeated("query", query.len(), documents.len())?;
    let asked = options.instruction.as_deref().map_or(0, str::len);
    check_repeated("instruction", asked, documents.len())?;
    let pair = |document: &String| TextPair { query: query.clone(), document: document.clone() };
    let pairs: Vec<TextPair> = documents.iter().map(pair).collect();
    Tally::current().asks_for(name.as_deref());
    let model = state.pool.embedding(name.as_deref(), Makes::Scores).await?;
    Tally::current().answered_by(model.name());
    let name = model.name().to_owned();
    let work = move || model.score(&pairs, &options).map_err(ApiError::from);
    let made = cut_off(&state, blocking(work)).await;
    let made = made.map_err(|error| error.or_about(form.field()))?;
    let results = results(&made, is_raw, form, top, returns.then_some(&documents[..]));
    if form == Form::Texts {
        return Ok(json_response(StatusCode::OK, &Json::Array(results)));
    }
    let tokens: usize = made.tokens.iter().sum();
    let object = json!({
        "id": state.id("rerank-"),
        "model": name,
        "results": results,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    });
    Ok(json_response(StatusCode::OK, &object))
}

/// The form of a request and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Cohere's and Jina's.
    Documents,
    /// That of Text Embeddings Inference.
    Texts,
}

impl Form {
    /// The field that has the documents.
    fn field(self) -> &'static str {
        match self {
            Form::Documents => "documents",
            Form::Texts => "texts",
        }
    }
}

/// The documents of a request, and its form.
fn given(reader: &mut Reader) -> Result<(Vec<Json>, Form)> {
    match (reader.list("documents")?, reader.list("texts")?) {
        (Some(items), None) => Ok((items, Form::Documents)),
        (None, Some(items)) => Ok((items, Form::Texts)),
        (None, None) => Err(ApiError::value("documents", "is missing")),
        (Some(_), Some(_)) => Err(ApiError::value("texts", "is another form of `documents`")),
    }
}

/// The texts of documents, which are texts or objects that have one as `text`.
fn documents(field: &str, items: Vec<Json>, most: usize) -> Result<Vec<String>> {
    if items.is_empty() {
        return Err(ApiError::value(field, "is empty"));
    }
    if items.len() > most {
        let reason = format!("has {} entries, at most {most} are allowed", items.len());
        return Err(ApiError::value(field, reason));
    }
    let one = |(index, item): (usize, Json)| {
        let text = match item {
            Json::String(text) => Some(text),
            Json::Object(mut fields) if fields.len() == 1 => match fields.remove("text") {
                Some(Json::String(text)) => Some(text),
                _ => None,
            },
            _ => None,
        };
        text.ok_or_else(|| {
            let reason = "expected a text, or an object with one as `text` and nothing else";
            ApiError::value(format!("{field}[{index}]"), reason)
        })
    };
    items.into_iter().enumerate().map(one).collect()
}

/// The best `top` documents, the best first; of equals, the earlier one.
fn results(
    made: &PairScores,
    is_raw: bool,
    form: Form,
    top: usize,
    texts: Option<&[String]>,
) -> Vec<Json> {
    let scores = if is_raw { made.logits.clone() } else { made.relevance() };
    let result = |index: usize| {
        let score = number(scores[index]);
        let text = texts.and_then(|texts| texts.get(index));
        match (form, text) {
            (Form::Documents, None) => json!({"index": index, "relevance_score": score}),
            (Form::Documents, Some(text)) => {
                json!({"index": index, "relevance_score": score, "document": {"text": text}})
            }
            (Form::Texts, None) => json!({"index": index, "score": score}),
            (Form::Texts, Some(text)) => json!({"index": index, "score": score, "text": text}),
        }
    };
    made.order().into_iter().take(top).map(result).collect()
}
