//! Which path leads where.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::{MethodRouter, any, get, post};
use axum::{Router, middleware};

use crate::error::ApiError;
use crate::http::guard::{Guard, guard};
use crate::http::response::text_response;
use crate::page::{CONTENT_SECURITY_POLICY, PAGE};
use crate::protocol::anthropic::messages;
use crate::protocol::error_body;
use crate::protocol::ollama::{self, refused};
use crate::protocol::openai::{chat, completions, embeddings, images, models};
use crate::protocol::own::{classify, inspect, rerank, text};
use crate::protocol::responses::store::Store;
use crate::protocol::responses::{create, stored};
use crate::protocol::waiting::kept_alive;
use crate::run::state::State;
use crate::{health, openapi};

/// Everything that a server answers.
pub fn router(state: &Arc<State>) -> Router {
    let guarded = Guard { state: Arc::clone(state), error_body };
    let changes = refused::PATHS.into_iter();
    let changes =
        changes.fold(Router::new(), |router, (path, _)| router.route(path, any(refused::refused)));
    changes
        .route("/", read(get(page)))
        .route("/health", read(get(health::health)))
        .route("/metrics", read(get(health::metrics)))
        .route("/openapi.json", read(get(openapi::serve)))
        .route("/v1/models", read(get(models::list)))
        // Names such as `owner/model` have a slash.
        .route("/v1/models/{*model}", read(get(models::one)))
        .route("/v1/chat/completions", write(post(chat::create)))
        .route("/v1/completions", write(post(completions::create)))
        .route("/v1/messages", write(post(messages::create)))
        .route("/v1/messages/count_tokens", write(post(messages::count_tokens)))
        .route("/v1/responses", write(post(create::create)))
        .route("/v1/responses/input_tokens", write(post(create::count)))
        .route("/v1/responses/{id}", read_or_delete(get(stored::one).delete(stored::delete)))
        .route("/v1/responses/{id}/cancel", write(post(stored::cancel)))
        .route("/v1/responses/{id}/input_items", read(get(stored::input_items)))
        .route("/v1/embeddings", write(post(embeddings::create)))
        .route("/v1/rerank", write(post(rerank::create)))
        .route("/v2/rerank", write(post(rerank::create)))
        .route("/v1/images/generations", write(post(images::generate)))
        .route("/v1/images/edits", write(post(images::edit)))
        .route("/v1/classify", write(post(classify::create)))
        .route("/v1/inspect", write(post(inspect::create)))
        .route("/api/version", read(get(ollama::models::version)))
        .route("/api/tags", read(get(ollama::models::tags)))
        .route("/api/ps", read(get(ollama::models::ps)))
        .route("/api/show", write(post(ollama::models::show)))
        .route("/api/chat", write(post(ollama::chat::create)))
        .route("/api/generate", write(post(ollama::generate::create)))
        .route("/api/embed", write(post(ollama::embed::create)))
        .route("/api/embeddings", write(post(ollama::embed::create_one)))
        .route("/tokenize", write(post(text::tokenize)))
        .route("/detokenize", write(post(text::detokenize)))
        .route("/apply-template", write(post(text::apply_template)))
        .fallback(nowhere)
        .layer(middleware::from_fn_with_state(Arc::clone(state), kept_alive))
        .layer(Extension(Store::new(&state.config.limits)))
        .layer(middleware::from_fn_with_state(guarded, guard))
        // Bodies are bounded where they are read, with the limit that the server was told.
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::clone(state))
}

fn read(route: MethodRouter<Arc<State>>) -> MethodRouter<Arc<State>> {
    route.fallback(|request: Request| async move { other_method(&request, "GET, HEAD") })
}

fn read_or_delete(route: MethodRouter<Arc<State>>) -> MethodRouter<Arc<State>> {
    route.fallback(|request: Request| async move { other_method(&request, "GET, HEAD, DELETE") })
}

fn write(route: MethodRouter<Arc<State>>) -> MethodRouter<Arc<State>> {
    route.fallback(|request: Request| async move { other_method(&request, "POST") })
}

fn other_method(request: &Request, allow: &'static str) -> ApiError {
    ApiError::method(request.method().as_str(), request.uri().path(), allow)
}

async fn nowhere(request: Request) -> ApiError {
    ApiError::not_found(request.uri().path())
}

async fn page() -> Response {
    let mut response = text_response(StatusCode::OK, "text/html; charset=utf-8", PAGE);
    let headers = response.headers_mut();
    let policy = HeaderValue::from_static(CONTENT_SECURITY_POLICY);
    headers.insert("content-security-policy", policy);
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}
