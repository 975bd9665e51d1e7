//! Which path leads where.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{DefaultBodyLimit, Request, State as Shared};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use axum::routing::{MethodRouter, any, get, post};
use axum::{Router, middleware};

use crate::error::{ApiError, Result};
use crate::http::address::{Paths, clipped};
use crate::http::guard::{Guard, guard};
use crate::http::ignored::telling_ignored;
use crate::http::path::Name;
use crate::page::PAGE;
use crate::protocol::anthropic::batches as message_batches;
use crate::protocol::anthropic::messages;
use crate::protocol::error_body;
use crate::protocol::google::action::{Action, is_client};
use crate::protocol::google::{self, generate::act};
use crate::protocol::llama_server::{self, completion, facts, slots};
use crate::protocol::ollama::{self, refused};
use crate::protocol::openai::{
    batches, chat, completions, embeddings, files, images, models, speech, transcriptions,
};
use crate::protocol::own::{classify, inspect, rerank, shutdown, text};
use crate::protocol::responses::store::Store;
use crate::protocol::responses::{create, stored};
use crate::protocol::waiting::kept_alive;
use crate::run::state::State;
use crate::{health, openapi};

/// Everything that a server answers, twice.
pub struct Routers {
    /// For clients, who must pass the guard.
    pub guarded: Router,
    /// For the server itself.
    pub open: Router,
}

/// The routers of a server.
pub fn routers(state: &Arc<State>) -> Routers {
    let guarded = Guard { state: Arc::clone(state), error_body };
    let routes = routes();
    let paths = Arc::new(Paths::new(routes.iter().map(|(path, _)| *path)));
    let add = |router: Router<Arc<State>>, (path, route)| router.route(path, route);
    let answers = routes
        .into_iter()
        .fold(Router::new(), add)
        .fallback(nowhere)
        // Inside of what answers before there is an answer.
        .layer(middleware::from_fn_with_state(Arc::clone(state), telling_ignored))
        .layer(middleware::from_fn_with_state(Arc::clone(state), kept_alive))
        .layer(Extension(Store::new(&state.config.limits)))
        .layer(Extension(Arc::clone(&paths)));
    let open = answers.clone().layer(DefaultBodyLimit::disable()).with_state(Arc::clone(state));
    let answers = answers
        .layer(middleware::from_fn_with_state(guarded, guard))
        // Bodies are bounded where they are read, with the limit that the server was told.
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::clone(state));
    // A path gets its one name before a route is looked for, and before anything is checked by it.
    let named = move |request: Request| {
        let request = paths.named(request);
        async move { request }
    };
    let guarded = Router::new().fallback_service(answers).layer(middleware::map_request(named));
    Routers { guarded, open }
}

/// Each path with what answers there.
fn routes() -> Vec<(&'static str, MethodRouter<Arc<State>>)> {
    let mut routes = vec![
        ("/", read(get(index))),
        ("/page/{*file}", read(get(file_of_page))),
        ("/health", read(get(health::health))),
        ("/metrics", read(get(health::metrics))),
        ("/openapi.json", read(get(openapi::serve))),
        ("/v1/models", read(get(list_models))),
        // Names such as `owner/model` have a slash.
        ("/v1/models/{*model}", of_model(get(one_model))),
        ("/v1beta/models", read(get(google::models::list))),
        ("/v1beta/models/{*model}", of_model(get(google::models::one))),
        ("/v1/chat/completions", write(post(chat::create))),
        ("/v1/completions", write(post(completions::create))),
        ("/v1/messages", write(post(messages::create))),
        ("/v1/messages/count_tokens", write(post(messages::count_tokens))),
        ("/v1/messages/batches", both(get(message_batches::list).post(message_batches::create))),
        (
            "/v1/messages/batches/{id}",
            removable(get(message_batches::one).delete(message_batches::delete)),
        ),
        ("/v1/messages/batches/{id}/cancel", write(post(message_batches::cancel))),
        ("/v1/messages/batches/{id}/results", read(get(message_batches::results))),
        ("/v1/files", both(get(files::list).post(files::create))),
        ("/v1/files/{id}", removable(get(files::one).delete(files::delete))),
        ("/v1/files/{id}/content", read(get(files::content))),
        ("/v1/batches", both(get(batches::list).post(batches::create))),
        ("/v1/batches/{id}", read(get(batches::one))),
        ("/v1/batches/{id}/cancel", write(post(batches::cancel))),
        ("/v1/responses", write(post(create::create))),
        ("/v1/responses/input_tokens", write(post(create::count))),
        ("/v1/responses/{id}", of_stored(get(stored::one).delete(stored::delete))),
        ("/v1/responses/{id}/cancel", write(post(stored::cancel))),
        ("/v1/responses/{id}/input_items", read(get(stored::input_items))),
        ("/v1/embeddings", write(post(embeddings::create))),
        ("/v1/rerank", write(post(rerank::create))),
        ("/v2/rerank", write(post(rerank::create))),
        ("/v1/reranking", write(post(rerank::create))),
        ("/v1/images/generations", write(post(images::generate))),
        ("/v1/images/edits", write(post(images::edit))),
        ("/v1/audio/speech", write(post(speech::speak))),
        ("/v1/audio/transcriptions", write(post(transcriptions::transcribe))),
        ("/v1/audio/translations", write(post(transcriptions::translate))),
        ("/v1/classify", write(post(classify::create))),
        ("/v1/inspect", write(post(inspect::create))),
        ("/api/version", read(get(ollama::models::version))),
        ("/api/tags", read(get(ollama::models::tags))),
        ("/api/ps", read(get(ollama::models::ps))),
        ("/api/show", write(post(ollama::models::show))),
        ("/api/chat", write(post(ollama::chat::create))),
        ("/api/generate", write(post(ollama::generate::create))),
        ("/api/embed", write(post(ollama::embed::create))),
        ("/api/embeddings", write(post(ollama::embed::create_one))),
        ("/completion", write(post(completion::complete))),
        ("/infill", write(post(completion::fill_in))),
        ("/props", read(get(facts::props))),
        ("/slots", read(get(slots::list))),
        ("/slots/{id}", write(post(slots::change))),
        ("/lora-adapters", read(get(facts::adapters))),
        ("/v1/models/load", write(post(llama_server::models::load))),
        ("/v1/models/unload", write(post(llama_server::models::unload))),
        ("/embedding", write(post(embeddings::create))),
        ("/version", read(get(facts::version))),
        ("/tokenize", write(post(text::tokenize))),
        ("/detokenize", write(post(text::detokenize))),
        ("/apply-template", write(post(text::apply_template))),
        ("/shutdown", write(post(shutdown::shut_down))),
    ];
    routes.extend(refused::PATHS.map(|(path, _)| (path, any(refused::refused))));
    routes
}

fn read(route: MethodRouter<Arc<State>>) -> MethodRouter<Arc<State>> {
    route.fallback(|request: Request| async move { other_method(&request, "GET, HEAD") })
}

fn both(route: MethodRouter<Arc<State>>) -> MethodRouter<Arc<State>> {
    route.fallback(|request: Request| async move { other_method(&request, "GET, HEAD, POST") })
}

fn removable(route: MethodRouter<Arc<State>>) -> MethodRouter<Arc<State>> {
    route.fallback(|request: Request| async move { other_method(&request, "GET, HEAD, DELETE") })
}

/// Other methods of a stored response are a 405. A word in the place of its id, such as `compact`,
/// is a path that there is not.
fn of_stored(route: MethodRouter<Arc<State>>) -> MethodRouter<Arc<State>> {
    route.fallback(|Extension(paths): Extension<Arc<Paths>>, request: Request| async move {
        match request.uri().path().rsplit('/').next().is_some_and(stored::is_id) {
            true => other_method(&request, "GET, HEAD, DELETE"),
            false => no_path(&paths, &request),
        }
    })
}

/// A model is asked to do something by a word behind its name, as Google's protocol has it. Other
/// methods of a model are a 405. Where no model has the name, such as `pull`, the path is one that
/// there is not.
fn of_model(route: MethodRouter<Arc<State>>) -> MethodRouter<Arc<State>> {
    let other = |Shared(state): Shared<Arc<State>>,
                 Extension(paths): Extension<Arc<Paths>>,
                 name: Result<Name>,
                 request: Request| async move {
        let Ok(Name(name)) = name else { return Err(no_path(&paths, &request)) };
        match Action::of(&name) {
            Some(asked) if request.method() == Method::POST => act(&state, asked, request).await,
            Some(_) => Err(other_method(&request, "POST")),
            None if state.pool.get(&name).await.is_ok() => Err(other_method(&request, "GET, HEAD")),
            None => Err(no_path(&paths, &request)),
        }
    };
    route.fallback(other)
}

fn write(route: MethodRouter<Arc<State>>) -> MethodRouter<Arc<State>> {
    route.fallback(|request: Request| async move { other_method(&request, "POST") })
}

fn other_method(request: &Request, allow: &'static str) -> ApiError {
    ApiError::method(request.method().as_str(), request.uri().path(), allow)
}

async fn nowhere(Extension(paths): Extension<Arc<Paths>>, request: Request) -> ApiError {
    no_path(&paths, &request)
}

fn no_path(paths: &Paths, request: &Request) -> ApiError {
    let path = request.uri().path();
    ApiError::not_found(clipped(path), paths.nearest(path).as_deref())
}

/// The models in the words of the client's protocol, where it says which.
async fn list_models(state: Shared<Arc<State>>, uri: Uri, headers: HeaderMap) -> Result<Response> {
    match is_client(&headers) {
        true => google::models::list(state, uri).await,
        false => models::list(state, uri).await,
    }
}

/// One model, as [`list_models`].
async fn one_model(
    state: Shared<Arc<State>>,
    name: Name,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response> {
    match is_client(&headers) {
        true => google::models::one(state, name, uri).await,
        false => models::one(state, name).await,
    }
}

async fn index(headers: HeaderMap) -> Response {
    PAGE.index(&headers)
}

async fn file_of_page(
    Extension(paths): Extension<Arc<Paths>>,
    request: Request,
) -> Result<Response> {
    let file = PAGE.file(request.uri().path(), request.headers());
    file.ok_or_else(|| no_path(&paths, &request))
}
