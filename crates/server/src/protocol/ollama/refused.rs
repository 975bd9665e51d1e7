//! Requests of Ollama's API that change its store of models, which this server leaves to its
//! operator.

use axum::extract::Request;

use crate::error::ApiError;

/// Paths of the store, each with what to do in its place.
pub const PATHS: [(&str, &str); 6] = [
    ("/api/pull", "fetch models with `ml pull ORG/NAME`, where the server runs"),
    ("/api/push", "models are not published from here; use the hub's own tools"),
    ("/api/create", "make models with `ml quantise SRC DST`, where the server runs"),
    ("/api/copy", "give a model a further name with `ml serve --model-alias ALIAS=NAME`"),
    ("/api/delete", "remove models with `ml rm ORG/NAME`, where the server runs"),
    ("/api/blobs/{digest}", "put files into a folder of `ml serve --models-dir`"),
];

/// Refuses a request to one of [`PATHS`].
pub async fn refused(request: Request) -> ApiError {
    let path = request.uri().path();
    let fits = |(own, _): &&(&str, &str)| own.split('/').nth(2) == path.split('/').nth(2);
    let remedy = PATHS.iter().find(fits).map_or("ask who runs the server", |(_, remedy)| remedy);
    ApiError::unsupported(path, format!("a server changes no models; {remedy}"))
}
